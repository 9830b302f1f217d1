-- Summaries of a session by number.
--
-- KEYS  the session's h
-- ARGV  the full key; the incarnation; numbers
-- Reply: record, and each summary or nil; nil when there is no such session.

local rec, life, _, _, _, inc = living(KEYS[1], ARGV[1])
if not rec or inc ~= ARGV[2] then return nil end
local fields = {}
for at = 3, #ARGV do fields[at - 2] = life .. 'm' .. ARGV[at] end
return { rec, fields_of(KEYS[1], fields) }
