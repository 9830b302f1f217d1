-- Keeps a staging for one commit, or gives it back to whoever wants it.
--
-- KEYS  its h
-- ARGV  whether it is given back (0, 1)
-- Reply: when it is due and whose it is; nil when it is gone, or kept for another commit.

local found = call('HMGET', KEYS[1], 'unborn', 'due', 'user', 'claimed')
if ARGV[1] == '1' then
  if found[4] then
    call('HDEL', KEYS[1], 'claimed')
    call('HSET', KEYS[1], 'unborn', '1')
  end
  return nil
end
if not found[1] then return nil end
call('HDEL', KEYS[1], 'unborn')
call('HSET', KEYS[1], 'claimed', '1')
return { found[2], found[3] }
