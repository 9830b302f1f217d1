-- Runs of a session, newest first by creation, or a part of them.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the place (creation and run) before which they begin, or '' for the newest; statuses, a byte each,
--       or '' for all; the most runs; how many to look at
-- Reply: the place of each run; its place with its state, and its head; the place last looked at, or '' when nothing
-- follows. nil when there is no such session.

local h, z = KEYS[1], KEYS[2]
local rec, life = living(h, ARGV[1])
if not rec then return nil end
local statuses, most, looks = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local prefix = life .. 'r'
local high = '(' .. prefix .. (ARGV[2] == '' and '\255' or ARGV[2])
local members, fields = descending(z, high, '[' .. prefix, looks), {}
for at, member in ipairs(members) do fields[at] = prefix .. run_in(member) end
local places, values, heads = {}, {}, {}
for at, value in ipairs(fields_of(h, fields)) do
  if #places == most then break end
  if statuses == '' or string.find(statuses, sub(value, 33, 33), 1, true) then
    places[#places + 1] = sub(members[at], 6)
    values[#values + 1] = value
    heads[#heads + 1] = life .. 'h' .. run_in(members[at])
  end
end
return { places, values, fields_of(h, heads), #members == looks and sub(members[looks], 6) or '' }
