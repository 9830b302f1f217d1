-- Deletes memory files of an owner with all their versions, and with the last of them what lists tell of the owner.
--
-- KEYS  the owner's o; the partition; f of each file
-- ARGV  the owner's key, digest and member of the partition; the incarnation and the version that a file must have, or
--       '' and '' for any; the name of each file
-- Reply: how many were deleted.

local o, p = KEYS[1], KEYS[2]
local owner_key, digest, listed, incarnation, version = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

check_owner(o, owner_key)
local deleted, is_any = 0, incarnation == ''
for at = 3, #KEYS do
  local f, name = KEYS[at], ARGV[at + 3]
  local found = call('HMGET', f, 'key', 'inc', 'ver')
  check_key(found[1], key_of(owner_key, name))
  local is_meant = found[2] == incarnation and found[3] == version
  if is_meant or (is_any and found[1]) then
    call('DEL', f)
    deleted = deleted + 1
  end
  if is_meant or is_any then
    call('HDEL', o, 'f' .. name)
    call('ZREM', p, files_of(digest) .. name)
  end
end
if #beginning(p, files_of(digest), 1) == 0 then
  call('DEL', o)
  call('ZREM', p, listed)
end
return deleted
