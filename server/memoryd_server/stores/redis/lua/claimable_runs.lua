-- The first runs of an agent that can be claimed before a time, with what is stored of them, where there is one
-- partition.
--
-- KEYS  the partition
-- ARGV  what the members of the agent's list begin with; the time (8 bytes); what the agent's full keys begin with; how
--       many
-- Reply: of each the session's full key and record, the run, its place with its state, and its head, up to a member that
--        tells of no run that is so; 0 when that is the first.

local LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
local byte = string.byte
local p, list, owner = KEYS[1], ARGV[1], ARGV[3]

-- The hash of a session, as `keys.py` names it.
local function hash_of(digest)
  local letters, at = {}, 1
  for from = 1, #digest, 3 do
    local high, middle, low = byte(digest, from, from + 2)
    local of_high, of_middle, of_low = high % 4, middle % 16, low % 64
    letters[at] = byte(LETTERS, (high - of_high) / 4 + 1)
    letters[at + 1] = byte(LETTERS, 16 * of_high + (middle - of_middle) / 16 + 1)
    letters[at + 2] = byte(LETTERS, 4 * of_middle + (low - of_low) / 64 + 1)
    letters[at + 3] = byte(LETTERS, of_low + 1)
    at = at + 4
  end
  return p .. ':' .. string.char(unpack(letters)) .. ':h'
end

local runs = {}
local from = #list + 1
for index, member in ipairs(ascending(p, '[' .. list, '(' .. list .. ARGV[2], tonumber(ARGV[4]))) do
  local at, digest = sub(member, from, from + 7), sub(member, from + 8, from + 31)
  local life, run = sub(member, from + 32, from + 35), sub(member, from + 36)
  local found = call('HMGET', hash_of(digest), 'key', 'life', 'rec', life .. 'r' .. run, life .. 'h' .. run)
  local key, value = found[1], found[4]
  local is_there = found[3] and found[2] == life and value and sub(value, 34, 42) == '1' .. at
  if not is_there or sub(key, 1, #owner) ~= owner then return index > 1 and runs or 0 end
  runs[index] = { key, found[3], run, value, found[5] }
end
return runs
