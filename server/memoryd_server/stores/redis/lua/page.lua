-- A page of messages by seq, or a part of one.
--
-- KEYS  the session's h and z
-- ARGV  the full key; life and shape as an earlier part told them, or '' and ''; the lowest and the highest seq; whether
--       it descends (0, 1); the most messages; the most bytes; how many entries to look at; roles, a byte each, or ''
--       for all; a run id, or '' for all; times from and to (excluded), or ''; whether the page holds a message already
--       (0, 1), so that the first need not fit
-- Reply: record, life, shape, whether this is the end (0, 1), the seq last looked at or '', entries that match, and
-- bodies: of all of them but one when the bounds end the page before that; nil when there is no such session; 0 when it
-- was changed since the earlier part.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, _, shape = living(h, ARGV[1])
if not rec then return nil end
if ARGV[2] ~= '' and (life ~= ARGV[2] or shape ~= ARGV[3]) then return 0 end
local is_descending, most, most_bytes, looks = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local roles, run_id, from_time, to_time = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local holds_any = ARGV[14] == '1'

local function matches(member)
  if roles ~= '' and not string.find(roles, sub(member, 39, 39), 1, true) then return false end
  if run_id ~= '' and sub(member, 62, 61 + unpack_('>I2', member, 60)) ~= run_id then return false end
  local created = sub(member, 52, 59)
  if from_time ~= '' and less(created, from_time) then return false end
  return to_time == '' or less(created, to_time)
end

local walk = by_seq(z, life, vis, ARGV[4], ARGV[5], is_descending, math.min(looks, most + 1))
local members, seqs, bytes, is_end, last = {}, {}, 0, 1, ''
while true do
  local member = walk()
  if not member then break end
  last = seq_of(member)
  if matches(member) then
    bytes = bytes + size_of(member)
    members[#members + 1] = member
    if #members > most or (bytes > most_bytes and (#seqs > 0 or holds_any)) then break end
    seqs[#seqs + 1] = last
  end
  looks = looks - 1
  if looks == 0 then
    is_end = 0
    break
  end
end
return { rec, life, shape, is_end, last, members, bodies_of(h, life, seqs) }
