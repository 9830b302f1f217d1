-- Gives a staging up, and deletes of it.
--
-- KEYS  its h and z; its partition
-- ARGV  its name; the most rows to delete; the member of the partition by which it was found, or ''
-- Reply: how many messages and look-ups were deleted.

local h, z, p = KEYS[1], KEYS[2], KEYS[3]
local most = tonumber(ARGV[2])
local found = call('HMGET', h, 'due', 'user')
if not found[1] then
  if ARGV[3] ~= '' then call('ZREM', p, ARGV[3]) end
  return { 0, 0 }
end
call('HDEL', h, 'unborn', 'claimed')
local life = pack('>I4', 1)
local messages = delete_messages(h, z, life, beginning(z, life .. 's', most))
local lookups = messages < most and delete_lookups(h, z, life, most - messages) or 0
if messages + lookups < most then
  call('DEL', h, z)
  call('ZREM', p, 'Q' .. found[1] .. 'S' .. ARGV[1])
  if found[2] ~= '' then call('ZREM', p, 'E' .. found[2] .. 'S' .. ARGV[1]) end
elseif ARGV[3] == '' and found[1] ~= ZERO then
  -- From now on a sweep may take it. What an erasure has begun with is left to that, which counts what it deletes.
  call('HSET', h, 'due', ZERO)
  call('ZADD', p, 0, 'Q' .. ZERO .. 'S' .. ARGV[1])
  call('ZREM', p, 'Q' .. found[1] .. 'S' .. ARGV[1])
end
return { messages, lookups }
