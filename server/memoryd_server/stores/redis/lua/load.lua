-- Loads a session's record with its newest messages and its opening, as much as one script may read.
--
-- KEYS  the session's h and z
-- ARGV  the full key; usabilities; the most messages; the most tokens, or -1; whether the opening is asked for (0, 1);
--       the most bytes of bodies; how many entries one script may read; whether the summary is asked for (0, 1)
-- Reply: nil when there is no such session; else record, life, shape, whether the tail is complete (0, 1), its entries
-- in reading order, newest first, whether the opening is (0, 1), its entries by seq, the bodies of both, where both are
-- complete and their sizes fit, and the current summary, where there is one and it is asked for.

local h, z = KEYS[1], KEYS[2]
local rec, life, vis, open, shape, _, number = living(h, ARGV[1])
if not rec then return nil end
local most, most_tokens = tonumber(ARGV[3]), tonumber(ARGV[4])
local most_bytes, cap = tonumber(ARGV[6]), tonumber(ARGV[7])

local tail, is_complete = usual_tail(z, life, ARGV[2], vis, most, most_tokens, cap), true
if not tail then
  tail, is_complete = take_tail(merged(z, life, ARGV[2], vis, '', chunk_of(most, most_tokens, cap)),
    most, most_tokens, cap, 0, 0, nil)
end

local opening, opening_is_complete = {}, true
if ARGV[5] == '1' and open ~= ZERO then
  opening, opening_is_complete = take_opening(by_seq(z, life, vis, ZERO, open, false, math.min(cap, 16)),
    most, most_tokens, cap, 0, 0)
end

local bodies
if is_complete and opening_is_complete then
  local bytes, seqs, taken = 0, {}, {}
  for at, member in ipairs(tail) do
    bytes = bytes + size_in(member)
    seqs[at] = seq_in(member)
    if #opening > 0 then taken[seqs[at]] = true end
  end
  for _, member in ipairs(opening) do
    local seq = seq_of(member)
    if not taken[seq] then bytes = bytes + size_of(member) end
    seqs[#seqs + 1] = seq
  end
  if bytes <= most_bytes then bodies = bodies_of(h, life, seqs) end
end

local summary = ARGV[8] == '1' and number and number ~= '' and call('HGET', h, life .. 'm' .. number)
return { rec, life, shape, is_complete and 1 or 0, tail, opening_is_complete and 1 or 0, opening, bodies or false,
  summary or false }
