-- Messages by seq.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; life and shape as an earlier part of the read told them, or '' and ''; seqs
-- Reply: record, life, shape, entries by seq, bodies: of those that are there and visible; nil when there is no such
-- session; 0 when it was changed since the earlier part.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, _, shape, inc = living(h, ARGV[1])
if not rec or inc ~= ARGV[2] then return nil end
if ARGV[3] ~= '' and (life ~= ARGV[3] or shape ~= ARGV[4]) then return 0 end
local members, seqs = {}, {}
for at = 5, #ARGV do
  local seq = ARGV[at]
  if is_visible(vis, seq) then
    local member = beginning(z, life .. 's' .. seq, 1)[1]
    if member then
      members[#members + 1] = member
      seqs[#seqs + 1] = seq
    end
  end
end
return { rec, life, shape, members, bodies_of(h, life, seqs) }
