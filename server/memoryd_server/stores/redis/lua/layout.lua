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
--   LIFE r RUN      the place and the state of a run, see `runs`;  LIFE h RUN   its head
--   LIFE t SIZE RUN NUMBER   a step of a run. SIZE is that of RUN (2 bytes)
--   NAME l ID    a look-up: its life, then its value. ID is its kind and its id
--   due user     of a staging: when it may be swept (8 bytes), whose it is; besides, `unborn` while it may become a
--                session, `claimed` while one commit alone may bring it to another partition
-- Members of z, all with score 0:
--   LIFE s SEQ …                 an entry by seq
--   LIFE USABILITY PLACE …       the same in reading order; a place is head (8), position (4), seq (8)
--   LIFE v NUMBER …              an event
--   LIFE m NUMBER                a summary, as its field of h
--   LIFE r CREATED RUN           a run, by its creation
--   LIFE t SIZE RUN NUMBER BYTES a step of a run, as its field of h. BYTES are those of its payload (4 bytes)
--   NAME i LIFE ID               the look-ups that began in a life
--   NAME d LIFE DUE USER         a dead life of which something is left: when it may be swept, whose it was
-- LIFE is the number of a life, NAME stands in its place where something belongs to the name: 4 zero bytes.
-- Sessions of earlier versions hold no r, h and t, and nothing else differs.

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

-- Of a member by seq.
local function seq_of(member) return sub(member, 6, 13) end
local function with_usability(member, usability) return sub(member, 1, 13) .. usability .. sub(member, 15) end
local function with_counts(member, counts) return sub(member, 1, 26) .. counts .. sub(member, 39) end

-- The member in reading order that goes with a member by seq.
local function reading(member)
  return sub(member, 1, 4) .. sub(member, 14, 26) .. sub(member, 6, 13) .. sub(member, 27, 51)
    .. sub(member, 62 + unpack_('>I2', member, 60))
end

-- Of a member in reading order.
local function seq_in(member) return sub(member, 18, 25) end

-- The state of a living session, or nil: record, life, visible seqs, end of the opening, shape, incarnation, number of
-- the current summary.
local function living(h, key)
  local found = call('HMGET', h, 'key', 'rec', 'life', 'vis', 'open', 'shape', 'inc', 'summary')
  if not found[2] then return nil end
  if found[1] ~= key then error('another session has this digest') end
  return found[2], found[3], found[4], found[5], found[6], found[7], found[8]
end
