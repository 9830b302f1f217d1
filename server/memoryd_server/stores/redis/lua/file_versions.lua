-- What is told of the versions of a memory file.
--
-- KEYS  the file's f
-- ARGV  the owner's key; the file's name
-- Reply: that of each version, ascending.

local f = KEYS[1]
local found = call('HMGET', f, 'key', 'kept')
if not found[1] then return {} end
check_key(found[1], key_of(ARGV[1], ARGV[2]))
local fields = {}
for at = 1, #found[2], 8 do fields[#fields + 1] = 'i' .. sub(found[2], at, at + 7) end
return fields_of(f, fields)
