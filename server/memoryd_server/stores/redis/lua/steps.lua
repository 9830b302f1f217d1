-- A page of a run's steps.
--
-- KEYS  the session's h and z
-- ARGV  the full key; the incarnation; the run; the lowest number; the most steps; the most bytes of payloads
-- Reply: numbers, steps, whether there are more (0, 1); nil when there is no such session, life or run.

local h, z = KEYS[1], KEYS[2]
local rec, life, _, _, _, inc = living(h, ARGV[1])
if not rec or inc ~= ARGV[2] or call('HEXISTS', h, life .. 'r' .. ARGV[3]) == 0 then return nil end
local most, left = tonumber(ARGV[5]), tonumber(ARGV[6])
local prefix = steps_of(life, ARGV[3])
-- One more tells whether there are more.
local members = ascending(z, '[' .. prefix .. ARGV[4], '(' .. prefix .. '\255', most + 1)
local numbers, fields = {}, {}
for at, member in ipairs(members) do
  left = left - unpack_('>I4', member, #member - 3)
  if at > most or (at > 1 and left < 0) then break end
  numbers[at] = sub(member, -12, -5)
  fields[at] = sub(member, 1, -5)
end
return { numbers, fields_of(h, fields), #members > #numbers and 1 or 0 }
