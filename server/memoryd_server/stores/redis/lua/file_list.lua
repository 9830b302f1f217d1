-- The last memory files of an owner by their names, backwards.
--
-- KEYS  the owner's o; the partition
-- ARGV  the owner's key and digest; the name before which they begin, or '' for the last one; the most files
-- Reply: names, and what is told of the current version of each.

local o, p, before, most = KEYS[1], KEYS[2], ARGV[3], tonumber(ARGV[4])
check_owner(o, ARGV[1])
local prefix = files_of(ARGV[2])
local high = '(' .. prefix .. (before == '' and '\255' or before)
local names, told = {}, {}
while #names < most do
  local wanted = most - #names
  local members, fields = descending(p, high, '[' .. prefix, wanted), {}
  for at, member in ipairs(members) do
    members[at] = sub(member, #prefix + 1)
    fields[at] = 'f' .. members[at]
  end
  -- A list may tell of what is not there.
  for at, value in ipairs(fields_of(o, fields)) do
    if value then
      names[#names + 1] = members[at]
      told[#told + 1] = value
    end
  end
  if #members < wanted then break end
  high = '(' .. prefix .. members[wanted]
end
return { names, told }
