-- Runs of a session: their fields and members are told in `layout`, the lists of a partition in `members.py`.
--
-- The field LIFE r RUN begins with what lists know of the run, and its state follows (`run_values.py`):
--   list (16)       that of its agent
--   created (8)
--   ended (8)       zero for one that has not
--   status (1)
--   claimable (9)   '1' and from when on anybody may claim it, or '0' and zero

local function has_ended(value) return sub(value, 25, 32) ~= ZERO end
local function listed_of(value) return sub(value, 1, 42) end -- All that lists know.
local function by_creation(life, run, value) return life .. 'r' .. sub(value, 17, 24) .. run end
local function run_in(member) return sub(member, 14) end
local function steps_of(life, run) return life .. 't' .. pack('>I2', #run) .. run end

-- The member of each list of the partition that a run is in; '' where it is in none.
local function listings(digest, life, run, value)
  if not value then return { '', '', '', '' } end
  local list, place = 'R' .. sub(value, 1, 16), digest .. life .. run
  local created = sub(value, 17, 24) .. place
  return {
    list .. '\0' .. created,
    list .. sub(value, 33, 33) .. created,
    has_ended(value) and list .. 'E' .. sub(value, 25, 32) .. place or '',
    sub(value, 34, 34) == '1' and list .. 'C' .. sub(value, 35, 42) .. place or '',
  }
end

-- Takes runs of a life, given by creation, out of the lists of the partition.
local function delist_runs(h, p, digest, life, members)
  local fields, gone = {}, {}
  for at, member in ipairs(members) do fields[at] = life .. 'r' .. run_in(member) end
  for at, value in ipairs(fields_of(h, fields)) do
    for _, each in ipairs(listings(digest, life, run_in(members[at]), value)) do
      if each ~= '' then gone[#gone + 1] = each end
    end
  end
  with_all('ZREM', p, gone)
end
