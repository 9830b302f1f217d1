-- Goes on with a tail, as long as nothing happened to what it has seen.
--
-- KEYS  the session's h and z
-- ARGV  the full key; life and shape as `load` told them; usabilities; the most messages; the most tokens, or -1; how
--       many entries to read; the place of the last one; how many messages and tokens there are so far; the newest head
-- Reply: whether the tail is complete (0, 1) and entries; nil when the session is another or was changed.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, _, shape = living(h, ARGV[1])
if not rec or life ~= ARGV[2] or shape ~= ARGV[3] then return nil end
local cap = tonumber(ARGV[7])
local members, is_complete = take_tail(merged(z, life, ARGV[4], vis, ARGV[8], cap),
  tonumber(ARGV[5]), tonumber(ARGV[6]), cap, tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11])
return { is_complete and 1 or 0, members }
