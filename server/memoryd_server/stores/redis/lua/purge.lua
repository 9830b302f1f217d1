-- Deletes messages of a living session.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; the lowest and the highest seq; the most messages
-- Reply: how many were deleted.

local rec, life, _, _, _, inc = living(KEYS[1], ARGV[1])
if not rec or inc ~= ARGV[2] then return 0 end
local prefix = life .. 's'
local members = ascending(KEYS[2], '[' .. prefix .. ARGV[3], '(' .. prefix .. ARGV[4] .. '\255', ARGV[5])
return delete_messages(KEYS[1], KEYS[2], life, members)
