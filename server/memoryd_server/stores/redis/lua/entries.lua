-- Entries by seq, newest first, with their `undo`.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; the lowest and the highest seq; the most entries
-- Reply: record, entries, and the `undo` of each or nil; nil when there is no such session.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, _, _, inc = living(h, ARGV[1])
if not rec or inc ~= ARGV[2] then return nil end
local most = tonumber(ARGV[5])
local walk = by_seq(z, life, vis, ARGV[3], ARGV[4], true, math.min(most, MOST))
local members, fields = {}, {}
while #members < most do
  local member = walk()
  if not member then break end
  members[#members + 1] = member
  fields[#fields + 1] = life .. 'u' .. seq_of(member)
end
return { rec, members, fields_of(h, fields) }
