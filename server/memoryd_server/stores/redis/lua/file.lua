-- A version of a memory file.
--
-- KEYS  the file's f
-- ARGV  the owner's key; the file's name; the version, or '' for the current one
-- Reply: incarnation, what is told of the version, its content, and the requests; nil when it is not there.

local f = KEYS[1]
local found = call('HMGET', f, 'key', 'inc', 'ver', 'req')
if not found[1] then return nil end
check_key(found[1], key_of(ARGV[1], ARGV[2]))
local version = ARGV[3] == '' and found[3] or ARGV[3]
local stored = call('HMGET', f, 'i' .. version, 'c' .. version)
if not stored[1] then return nil end
return { found[2], stored[1], stored[2], found[4] }
