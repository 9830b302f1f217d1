-- Begins a staging.
--
-- KEYS  its h and z; its partition
-- ARGV  its name; whose it is, or ''; when it is due; its state: `unborn`, or `claimed` while it is brought from
--       another partition
-- Reply: 1.

call('HSET', KEYS[1], ARGV[4], '1', 'user', ARGV[2], 'due', ARGV[3])
call('ZADD', KEYS[3], 0, 'Q' .. ARGV[3] .. 'S' .. ARGV[1])
if ARGV[2] ~= '' then call('ZADD', KEYS[3], 0, 'E' .. ARGV[2] .. 'S' .. ARGV[1]) end
return 1
