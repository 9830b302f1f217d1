-- Deletes what is left of a run that is deleted.
--
-- KEYS  the session's h and z; its partition
-- ARGV  the member of the partition that tells of it; life; run; the most rows
-- Reply: how many messages, events, look-ups, summaries, names, runs and steps were deleted.

local most = tonumber(ARGV[4])
local steps = delete_steps(KEYS[1], KEYS[2], steps_of(ARGV[2], ARGV[3]), most)
if steps < most then call('ZREM', KEYS[3], ARGV[1]) end
return { 0, 0, 0, 0, 0, 0, steps }
