-- Deletes old events of living sessions; what a dead life held goes with it.
--
-- KEYS  the session's h and z; its partition
-- ARGV  the member of the partition that tells of the event; life; number
-- Reply: how many were deleted.

call('ZREM', KEYS[3], ARGV[1])
local found = call('HMGET', KEYS[1], 'inc', 'life')
if not found[1] or found[2] ~= ARGV[2] then return 0 end
local members = beginning(KEYS[2], ARGV[2] .. 'v' .. ARGV[3], 1)
with_all('ZREM', KEYS[2], members)
return #members
