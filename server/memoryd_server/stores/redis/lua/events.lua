-- Events of a session.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; the lowest number; the most events
-- Reply: record, and the value of each event, by number; nil when there is no such session.

local rec, life, _, _, _, inc = living(KEYS[1], ARGV[1])
if not rec or inc ~= ARGV[2] then return nil end
local prefix = life .. 'v'
local members = ascending(KEYS[2], '[' .. prefix .. ARGV[3], '(' .. prefix .. '\255', ARGV[4])
for at, member in ipairs(members) do members[at] = sub(member, 14) end
return { rec, members }
