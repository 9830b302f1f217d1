-- Deletes of runs and of their steps.

-- What tells a sweep that a run is deleted, and that steps of it are left.
local function leaving(digest, life, run) return 'Q' .. ZERO .. 'R' .. digest .. life .. run end

-- Deletes runs, given by creation, without their steps. Returns: how many.
local function delete_runs(h, z, p, digest, life, members)
  delist_runs(h, p, digest, life, members)
  local fields = {}
  for _, member in ipairs(members) do
    fields[#fields + 1] = life .. 'r' .. run_in(member)
    fields[#fields + 1] = life .. 'h' .. run_in(member)
  end
  with_all('HDEL', h, fields)
  with_all('ZREM', z, members)
  return #members
end

-- Deletes up to so many steps of which members begin so. Returns: how many.
local function delete_steps(h, z, prefix, most)
  local members, fields = beginning(z, prefix, most), {}
  for at, member in ipairs(members) do fields[at] = sub(member, 1, -5) end
  with_all('HDEL', h, fields)
  with_all('ZREM', z, members)
  return #members
end
