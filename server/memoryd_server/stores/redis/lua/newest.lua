-- The newest visible entries of some usabilities.
--
-- KEYS  the session's h and z
-- ARGV  the full key; usabilities; the most entries
-- Reply: entries in reading order, newest first.

local rec, life, vis = living(KEYS[1], ARGV[1])
local members, most = {}, tonumber(ARGV[3])
local walk = rec and merged(KEYS[2], life, ARGV[2], vis, '', math.min(most, MOST))
while rec and #members < most do
  local member = walk()
  if not member then break end
  members[#members + 1] = member
end
return members
