-- A part of what a claimed staging holds, as `stage` takes it.
--
-- KEYS  its h and z
-- ARGV  the member of z that ended the part before, or ''; the most members; after how many bytes the part ends
-- Reply: the member that ends this part, or '' when nothing follows; messages and look-ups, see `stage`; nil when the
-- staging is gone.

local h, z = KEYS[1], KEYS[2]
if call('HEXISTS', h, 'claimed') == 0 then return nil end
local life, most, left = pack('>I4', 1), tonumber(ARGV[2]), tonumber(ARGV[3])
local low = ARGV[1] == '' and '[' .. NAME .. 'i' or '(' .. ARGV[1]
-- Look-ups come first; behind the entries by seq come no others that are to be told.
local members = ascending(z, low, '(' .. life .. 't', most)
local messages, lookups = {}, {}
for _, member in ipairs(members) do
  if sub(member, 1, 4) == NAME then
    local value = call('HGET', h, NAME .. 'l' .. sub(member, 10))
    lookups[#lookups + 1] = sub(member, 10)
    lookups[#lookups + 1] = sub(value, 5)
    left = left - #value
  elseif sub(member, 5, 5) == 's' then
    local seq = seq_of(member)
    local found = call('HMGET', h, life .. 'b' .. seq, life .. 'u' .. seq)
    messages[#messages + 1] = sub(member, 6)
    messages[#messages + 1] = found[1]
    messages[#messages + 1] = found[2] or ''
    left = left - #found[1]
  end
  if left < 0 then return { member, messages, lookups } end
end
return { #members == most and members[most] or '', messages, lookups }
