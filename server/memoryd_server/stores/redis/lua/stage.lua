-- Adds to a staging what is not there yet, and puts off when it is due.
--
-- KEYS  its h and z; its partition
-- ARGV  its name; when it is due; the state that it must be in (see `begin_staging`); how many values of messages there
--       are; these: entry by seq (without life and letter), body, undo or '', …; then look-ups: id, value (without
--       life), …
-- Reply: 1; 0 when it is gone.

local h, z, p = KEYS[1], KEYS[2], KEYS[3]
local found = call('HMGET', h, ARGV[3], 'due')
if not found[1] then return 0 end
local life = pack('>I4', 1)
if found[2] ~= ARGV[2] then
  call('ZADD', p, 0, 'Q' .. ARGV[2] .. 'S' .. ARGV[1])
  call('ZREM', p, 'Q' .. found[2] .. 'S' .. ARGV[1])
  call('HSET', h, 'due', ARGV[2])
end
local lookups_begin = 5 + tonumber(ARGV[4])
for at = 5, lookups_begin - 1, 3 do
  local entry = life .. 's' .. ARGV[at]
  local seq = seq_of(entry)
  if call('HSETNX', h, life .. 'b' .. seq, ARGV[at + 1]) == 1 then
    call('ZADD', z, 0, entry, 0, reading(entry))
    if ARGV[at + 2] ~= '' then call('HSET', h, life .. 'u' .. seq, ARGV[at + 2]) end
  end
end
for at = lookups_begin, #ARGV, 2 do
  if call('HSETNX', h, NAME .. 'l' .. ARGV[at], life .. ARGV[at + 1]) == 1 then
    call('ZADD', z, 0, NAME .. 'i' .. life .. ARGV[at])
  end
end
return 1
