-- Stores a version of a memory file, if the file is as expected.
--
-- KEYS  the file's f; its owner's o; their partition
-- ARGV  the owner's key, digest and member of the partition; the file's name; the expected incarnation and version, or
--       '' and '' where there must be no file; the new incarnation and version; what is told of it; its content; the
--       requests; how many versions stay
-- Reply: 1; 0 when the file is another.

local f, o, p = KEYS[1], KEYS[2], KEYS[3]
local owner_key, digest, listed, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local incarnation, version, told, content, requests = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local most = tonumber(ARGV[12])
local key = key_of(owner_key, name)

local found = call('HMGET', f, 'key', 'inc', 'ver', 'kept')
check_key(found[1], key)
check_owner(o, owner_key)
if (found[2] or '') ~= ARGV[5] or (found[3] or '') ~= ARGV[6] then return 0 end

local kept, gone = (found[4] or '') .. version, {}
while #kept > 8 * most do
  gone[#gone + 1] = 'i' .. sub(kept, 1, 8)
  gone[#gone + 1] = 'c' .. sub(kept, 1, 8)
  kept = sub(kept, 9)
end
call('ZADD', p, 0, listed, 0, files_of(digest) .. name)
call('HSET', o, 'key', owner_key, 'f' .. name, told)
call('HSET', f, 'key', key, 'inc', incarnation, 'ver', version, 'kept', kept, 'req', requests,
  'i' .. version, told, 'c' .. version, content)
with_all('HDEL', f, gone)
return 1
