-- Where things stand in the hash of a memory file (f), in that of its owner (o) and in their partition (p). `files.py`
-- and `members.py` write and read the same places.
--
-- Fields of f:
--   key          the full key: that of the owner, and the name
--   inc ver      incarnation and current version
--   kept         the numbers of the versions that are stored, ascending
--   req          the requests that are remembered
--   i VERSION    what is told of a version
--   c VERSION    its content
-- Fields of o:
--   key          the owner in full
--   f NAME       what is told of the current version of each file
-- Members of p: 'O' and the owner's place, 'M' and the owner's digest and NAME. They are there first and go last.
-- Versions are numbers of 8 bytes.

local function key_of(owner_key, name) return owner_key .. pack('>I4', #name) .. name end

local function check_key(stored, key)
  if stored and stored ~= key then error('another file has this digest') end
end

local function check_owner(o, owner_key)
  local stored = call('HGET', o, 'key')
  if stored and stored ~= owner_key then error('another owner of files has this digest') end
end

local function files_of(digest) return 'M' .. digest end
