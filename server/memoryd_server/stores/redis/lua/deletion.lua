-- Deletes of what a session's hash and sorted set hold.

-- Deletes entries, given by seq, with their bodies.
local function delete_messages(h, z, life, members)
  local fields, gone = {}, {}
  for _, member in ipairs(members) do
    local seq = seq_of(member)
    fields[#fields + 1] = life .. 'b' .. seq
    fields[#fields + 1] = life .. 'u' .. seq
    gone[#gone + 1] = member
    gone[#gone + 1] = reading(member)
  end
  with_all('HDEL', h, fields)
  with_all('ZREM', z, gone)
  return #members
end

-- Deletes up to so many look-ups of a life.
local function delete_lookups(h, z, life, most)
  local members = beginning(z, NAME .. 'i' .. life, most)
  local fields = {}
  for at, member in ipairs(members) do fields[at] = NAME .. 'l' .. sub(member, 10) end
  with_all('HDEL', h, fields)
  with_all('ZREM', z, members)
  return #members
end
