-- Where things stand in a session's hash (h) and sorted set (z). Every script begins with this; `codec.py` and
-- `members.py` write and read the same places.
--
-- Fields of h:
--   key          the full key
--   life         the number of the last life (4 bytes, from 1)
--   inc ver rec  incarnation, version and record of the living session; absent from a dead name
--   vis          its visible seqs: pairs of first and last (8 bytes each), ascending
--   open         the seq of the last message of its opening (8 bytes)
--   shape        how often something happened to messages that had been stored before: what a walk of several
--                scripts has seen stays true while this does, whatever is appended
--   ended        when a dead name is to be forgotten (8 bytes)
--   summary      the number of the current summary (8 bytes), or ''; absent where there never was one
--   LIFE b SEQ   a body;  LIFE u SEQ   its `undo`, where it has one
--   LIFE m NUMBER   a summary
--   NAME l ID    a look-up: its life, then its value. ID is its kind and its id
--   due user     of a staging: when it may be swept (8 bytes), whose it is; besides, `unborn` while it may become a
--                session, `claimed` while one commit alone may bring it to another partition
-- Members of z, all with score 0:
--   LIFE s SEQ …                 an entry by seq
--   LIFE USABILITY PLACE …       the same in reading order; a place is head (8), position (4), seq (8)
--   LIFE v NUMBER …              an event
--   LIFE m NUMBER                a summary, as its field of h
--   NAME i LIFE ID               the look-ups that began in a life
--   NAME d LIFE DUE USER         a dead life of which something is left: when it may be swept, whose it was
-- LIFE is the number of a life, NAME stands in its place where something belongs to the name: 4 zero bytes.

local call, pack, unpack_, sub = redis.call, struct.pack, struct.unpack, string.sub
local NAME = '\0\0\0\0'
local ZERO = '\0\0\0\0\0\0\0\0' -- The least number of 8 bytes.
local MOST = 1000 -- Values that one command is given: Lua's stack is bounded.

-- Members from low to high, both as BYLEX has them, at most so many.
local function ascending(key, low, high, most)
  return call('ZRANGE', key, low, high, 'BYLEX', 'LIMIT', 0, most)
end

local function descending(key, high, low, most)
  return call('ZRANGE', key, high, low, 'BYLEX', 'REV', 'LIMIT', 0, most)
end

-- All members that begin so. No byte behind a prefix that is used here is 255.
local function beginning(key, prefix, most)
  return ascending(key, '[' .. prefix, '(' .. prefix .. '\255', most or -1)
end

-- Runs a command with a list of values that may be long.
local function with_all(command, key, values)
  for first = 1, #values, MOST do
    call(command, key, unpack(values, first, math.min(first + MOST - 1, #values)))
  end
end

local function fields_of(h, fields)
  if #fields <= MOST then
    return #fields > 0 and call('HMGET', h, unpack(fields)) or {}
  end
  local values = {}
  for first = 1, #fields, MOST do
    for _, value in ipairs(call('HMGET', h, unpack(fields, first, math.min(first + MOST - 1, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- Whether one number of 8 bytes is less than another. Lua's own numbers are floats, and its texts sort by a locale.
local function less(a, b)
  local a_high, a_low = unpack_('>I4I4', a)
  local b_high, b_low = unpack_('>I4I4', b)
  return a_high < b_high or (a_high == b_high and a_low < b_low)
end

-- Whether the place of one member in reading order is before that of another.
local function is_before(a, b)
  local a1, a2, a3, a4, a5 = unpack_('>I4I4I4I4I4', a, 6)
  local b1, b2, b3, b4, b5 = unpack_('>I4I4I4I4I4', b, 6)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  if a3 ~= b3 then return a3 < b3 end
  if a4 ~= b4 then return a4 < b4 end
  return a5 < b5
end

-- Of a member by seq.
local function seq_of(member) return sub(member, 6, 13) end
local function tokens_of(member) return unpack_('>I8', member, 27) end
local function size_of(member) return unpack_('>I4', member, 35) end
local function with_usability(member, usability) return sub(member, 1, 13) .. usability .. sub(member, 15) end
local function with_counts(member, counts) return sub(member, 1, 26) .. counts .. sub(member, 39) end

-- The member in reading order that goes with a member by seq.
local function reading(member)
  return sub(member, 1, 4) .. sub(member, 14, 26) .. sub(member, 6, 13) .. sub(member, 27, 51)
    .. sub(member, 62 + unpack_('>I2', member, 60))
end

-- Of a member in reading order.
local function head_of(member) return sub(member, 6, 13) end
local function seq_in(member) return sub(member, 18, 25) end
local function tokens_in(member) return unpack_('>I8', member, 26) end
local function size_in(member) return unpack_('>I4', member, 34) end

local function is_visible(vis, seq)
  for at = 1, #vis, 16 do
    if not less(seq, sub(vis, at, at + 7)) and not less(sub(vis, at + 8, at + 15), seq) then return true end
  end
  return false
end

-- What a walk of one usability answers, one by one: visible members backwards in reading order, from before a place on
-- (empty for the newest). Removed ranges are jumped over.
local function backwards(z, life, usability, vis, place, chunk)
  local prefix = life .. usability
  local segment = #vis / 16
  local members, at, full = {}, 0, true
  local low, high
  local function enter()
    full = segment > 0
    if full then
      low = '[' .. prefix .. sub(vis, 16 * segment - 15, 16 * segment - 8)
      high = '(' .. prefix .. sub(vis, 16 * segment - 7, 16 * segment) .. '\255'
    end
  end
  while place ~= '' and segment > 0 and less(place, sub(vis, 16 * segment - 15, 16 * segment - 8)) do
    segment = segment - 1
  end
  enter()
  if place ~= '' and segment > 0 and not less(sub(vis, 16 * segment - 7, 16 * segment), place) then
    high = '(' .. prefix .. place
  end
  local gaps = #vis > 16
  return function()
    while segment > 0 do
      if at < #members then
        at = at + 1
        local member = members[at]
        if not gaps or is_visible(vis, seq_in(member)) then return member end
      elseif full then
        members, at = descending(z, high, low, chunk), 0
        full = #members == chunk
        if full then high = '(' .. members[chunk] end
      else
        segment = segment - 1
        enter()
      end
    end
  end
end

-- One walk in reading order, or backwards in it, out of several.
local function merge(walks, is_descending)
  local heads = {}
  for at, walk in ipairs(walks) do heads[at] = walk() end
  return function()
    local first
    for at = 1, #walks do
      if heads[at] and (not first or is_before(heads[first], heads[at]) == is_descending) then first = at end
    end
    if not first then return nil end
    local member = heads[first]
    heads[first] = walks[first]()
    return member
  end
end

-- One walk backwards in reading order over several usabilities.
local function merged(z, life, usabilities, vis, place, chunk)
  if #usabilities == 1 then return backwards(z, life, usabilities, vis, place, chunk) end
  local walks = {}
  for at = 1, #usabilities do walks[at] = backwards(z, life, sub(usabilities, at, at), vis, place, chunk) end
  return merge(walks, true)
end

-- Members that begin with a prefix and a visible number, from one number to another (both included), one by one. The
-- first number may have more behind it, from which on members with that number are meant.
local function by_number(z, prefix, vis, from, to, is_descending, chunk)
  local segments = #vis / 16
  local segment = is_descending and segments + 1 or 0
  local members, at, full = {}, 0, false
  local low, high
  return function()
    while true do
      if at < #members then
        at = at + 1
        return members[at]
      elseif full then
        if is_descending then
          members = descending(z, high, low, chunk)
          high = '(' .. (members[chunk] or '')
        else
          members = ascending(z, low, high, chunk)
          low = '(' .. (members[chunk] or '')
        end
        at, full = 0, #members == chunk
      else
        segment = segment + (is_descending and -1 or 1)
        if segment < 1 or segment > segments then return nil end
        local first, last = sub(vis, 16 * segment - 15, 16 * segment - 8), sub(vis, 16 * segment - 7, 16 * segment)
        if not less(from, first) then first = from end
        if less(to, last) then last = to end
        if not less(last, first) then
          low, high, full = '[' .. prefix .. first, '(' .. prefix .. last .. '\255', true
        end
      end
    end
  end
end

local function by_seq(z, life, vis, from, to, is_descending, chunk)
  return by_number(z, life .. 's', vis, from, to, is_descending, chunk)
end

local function bodies_of(h, life, seqs)
  local fields = {}
  for at = 1, #seqs do fields[at] = life .. 'b' .. seqs[at] end
  return fields_of(h, fields)
end

-- The state of a living session, or nil: record, life, visible seqs, end of the opening, shape, incarnation, number of
-- the current summary.
local function living(h, key)
  local found = call('HMGET', h, 'key', 'rec', 'life', 'vis', 'open', 'shape', 'inc', 'summary')
  if not found[2] then return nil end
  if found[1] ~= key then error('another session has this digest') end
  return found[2], found[3], found[4], found[5], found[6], found[7], found[8]
end

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
