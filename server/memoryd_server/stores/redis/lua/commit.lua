-- Makes changes of one session, each by itself, in their order: design section 5.
--
-- KEYS  the session's h and z; its partition. Where a staging may be adopted, its h, z and partition besides.
-- ARGV  the full key; the session's digest; the staging's name, or ''; whether a change that is known is to be written
--       about, so that waiting for a replica waits for what was written before, too (0, 1); then of each change:
--   expected   two values: the incarnation ('' where no session may exist) and the version
--   kind       what it does: 0 changes a living session, 1 begins a life, 2 ends one, 3 begins a life with a staging
--   user       whose the life is that ends; '' for nobody
--   touches    whether messages that were stored before are touched, or joined by new ones (0, 1)
--   record     three values: the new record, its incarnation and version
--   sizes      how many values each of these lists has (4 bytes each), of which most are mostly empty
--   lists      other fields of h: name, value, …
--              new messages: entry by seq (without life and letter), body, undo or '', …
--              look-ups: id, value, …
--              heads of groups that are completed
--              heads of groups that are reopened
--              messages that get other bodies: seq, counts, body, …
--              events: number, value, when it is old, …
--              summaries: number, the new summary or '' for one that goes, …
--              runs: id, the beginning of its place (list, creation) or '' for one that goes on, the rest of it with the
--              new state, the new head or '' where it stays, …
--              new steps: SIZE RUN NUMBER, BYTES, the step, …
--              members of the partition to add
--              members of the partition to remove
-- Reply: an outcome for each change: {C}ommitted; conflict {X, record or nil}; {K}nown {K, place among the look-ups
-- (from 1), value, …}; {L}ost; {T}aken.

local h, z, p = KEYS[1], KEYS[2], KEYS[3]
local key, digest, staging, confirms = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

-- Runs that the end of a life takes out of lists. If there ever are more, their members stay until the life is buried,
-- and are passed over like all that tell of what is gone.
local MOST_DELISTED = 10000

local ARGV = ARGV
local NOTHING = {}
local at = 4

local function take_list(size)
  if size == 0 then return NOTHING end
  local list = {}
  for place = 1, size do list[place] = ARGV[at + place] end
  at = at + size
  return list
end

local function take_change()
  local change = {
    incarnation = ARGV[at + 1], version = ARGV[at + 2], kind = ARGV[at + 3], user = ARGV[at + 4],
    touches = ARGV[at + 5] == '1',
    new_record = ARGV[at + 6], new_incarnation = ARGV[at + 7], new_version = ARGV[at + 8],
  }
  at = at + 9
  local fields, messages, lookups, completed, reopened, replaced, events, summaries, runs, steps, listed, unlisted
    = unpack_('>I4I4I4I4I4I4I4I4I4I4I4I4', ARGV[at])
  change.fields, change.messages, change.lookups = take_list(fields), take_list(messages), take_list(lookups)
  change.completed, change.reopened, change.replaced = take_list(completed), take_list(reopened), take_list(replaced)
  change.events, change.summaries = take_list(events), take_list(summaries)
  change.runs, change.steps = take_list(runs), take_list(steps)
  change.listed, change.unlisted = take_list(listed), take_list(unlisted)
  return change
end

local function now()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function end_life(life, user, is_last)
  local due = pack('>I8', now() + PURGE_DELAY + 1)
  -- First what needs no memory: a full database lets sessions go.
  call('HDEL', h, 'inc', 'ver', 'rec', 'vis', 'open', 'shape', 'summary')
  delist_runs(h, p, digest, life, descending(z, '(' .. life .. 'r\255', '[' .. life .. 'r', MOST_DELISTED))
  call('ZADD', z, 0, NAME .. 'd' .. life .. due .. user)
  call('ZADD', p, 0, 'Q' .. due .. 'L' .. digest .. life)
  if user ~= '' then call('ZADD', p, 0, 'E' .. user .. 'L' .. digest .. life) end
  if is_last then
    local forgotten = pack('>I8', now() + LOOKUP_TIME + 1)
    call('HSET', h, 'ended', forgotten)
    call('ZADD', p, 0, 'Q' .. forgotten .. 'N' .. digest)
  end
end

-- Takes a staging's keys for the session's. Returns: the life of what is in them, or nil when it is gone.
local function adopt()
  local found = call('HMGET', KEYS[4], 'unborn', 'due', 'user')
  if not found[1] then return nil end
  call('RENAME', KEYS[4], h)
  if call('EXISTS', KEYS[5]) == 1 then call('RENAME', KEYS[5], z) end
  call('HDEL', h, 'unborn', 'due', 'user')
  call('ZREM', KEYS[6], 'Q' .. found[2] .. 'S' .. staging)
  if found[3] ~= '' then call('ZREM', KEYS[6], 'E' .. found[3] .. 'S' .. staging) end
  return pack('>I4', 1)
end

-- Turns the messages of groups from one usability to another.
local function turn(life, heads, before, after)
  for _, head in ipairs(heads) do
    for _, member in ipairs(beginning(z, life .. before .. head)) do
      local entry = beginning(z, life .. 's' .. seq_in(member))[1]
      local turned = with_usability(entry, after)
      call('ZREM', z, entry, member)
      call('ZADD', z, 0, turned, 0, reading(turned))
    end
  end
end

local function replace(life, replaced)
  for at = 1, #replaced, 3 do
    local seq = replaced[at]
    local entry = beginning(z, life .. 's' .. seq)[1]
    if entry then
      local with = with_counts(entry, replaced[at + 1])
      if with ~= entry then
        call('ZREM', z, entry, reading(entry))
        call('ZADD', z, 0, with, 0, reading(with))
      end
      local field = life .. 'b' .. seq
      local body = call('HGET', h, field)
      call('HSET', h, field, sub(body, 1, 4 + unpack_('>I4', body)) .. replaced[at + 2])
    end
  end
end

-- The stored values of the runs of a change, by place in it. Nil when one begins of which something is stored, or one
-- goes on that is gone.
local function stored_runs(life, runs)
  local values = {}
  for at = 1, #runs, 4 do
    local value = call('HGET', h, life .. 'r' .. runs[at])
    local begins = runs[at + 1] ~= ''
    if begins == (value ~= false) then return nil end
    if begins and #beginning(z, steps_of(life, runs[at]), 1) > 0 then return nil end
    values[at] = value
  end
  return values
end

local function apply(change)
  local fields = { 'key', 'inc', 'ver', 'life', 'ended' }
  local lookups = change.lookups
  for at = 1, #lookups, 2 do fields[#fields + 1] = NAME .. 'l' .. lookups[at] end
  local found = fields_of(h, fields)
  local inc, life = found[2], found[4]
  if found[1] and found[1] ~= key then error('another session has this digest') end

  local known = { 'K' }
  for at = 6, #fields do
    if found[at] then
      known[#known + 1] = at - 5
      known[#known + 1] = found[at]
    end
  end
  if #known > 1 then
    if confirms then call('HINCRBY', h, 'told', 1) end
    return known
  end
  if (inc or '') ~= change.incarnation or (inc and found[3] ~= change.version) then
    return { 'X', inc and call('HGET', h, 'rec') }
  end

  local kind, runs = change.kind, change.runs
  local stored = {}
  if kind == '0' then stored = stored_runs(life, runs) end
  if not stored then return { 'X' } end
  local set, add = { 'rec', change.new_record, 'ver', change.new_version }, {}
  if kind == '2' then
    if inc then
      end_life(life, change.user, true)
      with_all('ZREM', p, change.unlisted)
    end
    return { 'C' }
  elseif kind ~= '0' then
    if kind == '3' then
      if found[1] then return { 'T' } end
      life = adopt()
      if not life then return { 'L' } end
    else
      if inc then
        end_life(life, change.user, false)
      elseif found[5] then
        call('HDEL', h, 'ended')
        call('ZREM', p, 'Q' .. found[5] .. 'N' .. digest)
      end
      life = pack('>I4', life and unpack_('>I4', life) + 1 or 1)
    end
    set = { 'key', key, 'life', life, 'inc', change.new_incarnation, 'shape', '0', unpack(set) }
  end
  for _, value in ipairs(change.fields) do set[#set + 1] = value end

  local messages = change.messages
  for at = 1, #messages, 3 do
    local entry = life .. 's' .. messages[at]
    local seq = seq_of(entry)
    add[#add + 1] = 0
    add[#add + 1] = entry
    add[#add + 1] = 0
    add[#add + 1] = reading(entry)
    set[#set + 1] = life .. 'b' .. seq
    set[#set + 1] = messages[at + 1]
    if messages[at + 2] ~= '' then
      set[#set + 1] = life .. 'u' .. seq
      set[#set + 1] = messages[at + 2]
    end
  end
  for at = 1, #lookups, 2 do
    add[#add + 1] = 0
    add[#add + 1] = NAME .. 'i' .. life .. lookups[at]
    set[#set + 1] = NAME .. 'l' .. lookups[at]
    set[#set + 1] = life .. lookups[at + 1]
  end
  local events, listed, unlisted = change.events, {}, { unpack(change.unlisted) }
  for _, member in ipairs(change.listed) do
    listed[#listed + 1] = 0
    listed[#listed + 1] = member
  end
  for at = 1, #events, 3 do
    add[#add + 1] = 0
    add[#add + 1] = life .. 'v' .. events[at] .. events[at + 1]
    listed[#listed + 1] = 0
    listed[#listed + 1] = 'Q' .. events[at + 2] .. 'V' .. digest .. life .. events[at]
  end
  local summaries, dropped = change.summaries, {}
  for at = 1, #summaries, 2 do
    local name = life .. 'm' .. summaries[at]
    if summaries[at + 1] == '' then
      dropped[#dropped + 1] = name
    else
      add[#add + 1] = 0
      add[#add + 1] = name
      set[#set + 1] = name
      set[#set + 1] = summaries[at + 1]
    end
  end

  for at = 1, #runs, 4 do
    local run, before = runs[at], stored[at]
    local value = (before and sub(before, 1, 24) or runs[at + 1]) .. runs[at + 2]
    set[#set + 1] = life .. 'r' .. run
    set[#set + 1] = value
    if runs[at + 3] ~= '' then
      set[#set + 1] = life .. 'h' .. run
      set[#set + 1] = runs[at + 3]
    end
    if not before then
      add[#add + 1] = 0
      add[#add + 1] = by_creation(life, run, value)
    end
    if not before or listed_of(before) ~= listed_of(value) then
      local old = listings(digest, life, run, before)
      for place, member in ipairs(listings(digest, life, run, value)) do
        if member ~= old[place] then
          if member ~= '' then
            listed[#listed + 1] = 0
            listed[#listed + 1] = member
          end
          if old[place] ~= '' then unlisted[#unlisted + 1] = old[place] end
        end
      end
    end
  end
  local steps = change.steps
  for at = 1, #steps, 3 do
    local name = life .. 't' .. steps[at]
    add[#add + 1] = 0
    add[#add + 1] = name .. steps[at + 1]
    set[#set + 1] = name
    set[#set + 1] = steps[at + 2]
  end

  with_all('HSET', h, set)
  turn(life, change.completed, '1', '0')
  turn(life, change.reopened, '0', '1')
  replace(life, change.replaced)
  with_all('ZADD', z, add)
  with_all('HDEL', h, dropped)
  with_all('ZREM', z, dropped)
  with_all('ZADD', p, listed)
  with_all('ZREM', p, unlisted)
  if change.touches then call('HINCRBY', h, 'shape', 1) end
  return { 'C' }
end

local outcomes, is_refused = {}, false
while at < #ARGV do
  local change = take_change()
  local outcome = is_refused and { 'X' } or apply(change)
  is_refused = outcome[1] ~= 'C'
  outcomes[#outcomes + 1] = outcome
end
return outcomes
