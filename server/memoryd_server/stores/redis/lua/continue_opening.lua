-- Goes on with an opening, as long as nothing happened to what it has seen.
--
-- KEYS  the session's h and z
-- ARGV  the full key; life and shape as `load` told them; the most messages; the most tokens, or -1 (both of the
--       window); how many entries to read; the first seq to read; how many messages and tokens there are so far
-- Reply: whether the opening is complete (0, 1) and entries by seq; nil when the session is another or was changed.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, open, shape = living(h, ARGV[1])
if not rec or life ~= ARGV[2] or shape ~= ARGV[3] then return nil end
local cap = tonumber(ARGV[6])
local members, is_complete = take_opening(by_seq(z, life, vis, ARGV[7], open, false, cap),
  tonumber(ARGV[4]), tonumber(ARGV[5]), cap, tonumber(ARGV[8]), tonumber(ARGV[9]))
return { is_complete and 1 or 0, members }
