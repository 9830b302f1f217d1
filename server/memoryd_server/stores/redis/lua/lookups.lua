-- A page of the look-ups of a session's name, by life, kind and id.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the last one of the page before (life and id), or ''; the most look-ups
-- Reply: life and id of each, and the value of each.

local h, z = KEYS[1], KEYS[2]
local key = call('HGET', h, 'key')
if not key then return { {}, {} } end
if key ~= ARGV[1] then error('another session has this digest') end
local prefix = NAME .. 'i'
local members = ascending(z, (ARGV[2] == '' and '[' or '(') .. prefix .. ARGV[2], '(' .. prefix .. '\255', ARGV[3])
local fields = {}
for at, member in ipairs(members) do
  members[at] = sub(member, 6)
  fields[at] = NAME .. 'l' .. sub(member, 10)
end
return { members, fields_of(h, fields) }
