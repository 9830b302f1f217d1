-- Entries of all usabilities in reading order, or a part of them.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; the lowest head, or the place of the last entry of an earlier part with a byte 255
--       behind it; the highest head; the most entries
-- Reply: record, entries in reading order; nil when there is no such session.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, _, _, inc = living(h, ARGV[1])
if not rec or inc ~= ARGV[2] then return nil end
local most = tonumber(ARGV[5])
local walks = {}
for usability = 0, 2 do
  walks[usability + 1] = by_number(z, life .. usability, vis, ARGV[3], ARGV[4], false, math.min(most, MOST))
end
local walk, gaps = merge(walks, false), #vis > 16
local members = {}
while #members < most do
  local member = walk()
  if not member then break end
  if not gaps or is_visible(vis, seq_in(member)) then members[#members + 1] = member end
end
return { rec, members }
