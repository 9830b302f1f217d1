-- Stores the settings of an agent, if those that are stored have the version before.
--
-- KEYS  the hash of the settings of a tenant's agents; the sorted set of their names
-- ARGV  the agent's name; the version that must be stored; the new version; the settings
-- Reply: 1; 0 when the stored version is another.

local stored = call('HGET', KEYS[1], ARGV[1])
local version = stored and string.match(stored, '^%d+') or '0'
if version ~= ARGV[2] then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[4])
call('ZADD', KEYS[2], 0, ARGV[1])
return 1
