-- A part of what a staging holds, as `stage` takes it.
--
-- KEYS  its h and z
-- ARGV  the member of z that ended the part before, or ''; the most members to look at
-- Reply: the member that ends this part, or '' when nothing follows; messages and look-ups, see `stage`.

local h, z = KEYS[1], KEYS[2]
local life, most = pack('>I4', 1), tonumber(ARGV[2])
local low = ARGV[1] == '' and '[' .. NAME .. 'i' or '(' .. ARGV[1]
local members = ascending(z, low, '(' .. life .. 't', most)
local messages, lookups = {}, {}
for _, member in ipairs(members) do
  if sub(member, 1, 4) == NAME then
    lookups[#lookups + 1] = sub(member, 10)
    lookups[#lookups + 1] = sub(call('HGET', h, NAME .. 'l' .. sub(member, 10)), 5)
  elseif sub(member, 5, 5) == 's' then
    local seq = seq_of(member)
    local found = call('HMGET', h, life .. 'b' .. seq, life .. 'u' .. seq)
    messages[#messages + 1] = sub(member, 6)
    messages[#messages + 1] = found[1]
    messages[#messages + 1] = found[2] or ''
  end
end
return { #members == most and members[most] or '', messages, lookups }
