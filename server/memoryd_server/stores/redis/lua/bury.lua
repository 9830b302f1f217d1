-- Deletes what is left of dead lives of a session's name, and with the last of them a dead name.
--
-- KEYS  the session's h and z; its partition
-- ARGV  the session's digest; a life, or '' for all lives of a name, which must be dead; the most rows; whether its
--       look-ups go too (0, 1); the member of the partition by which it was found
-- Reply: how many messages, events, look-ups, summaries, names, runs and steps were deleted.

local h, z, p = KEYS[1], KEYS[2], KEYS[3]
local digest, most, forgets = ARGV[1], tonumber(ARGV[3]), ARGV[4] == '1'
local messages, events, lookups, summaries, names, runs, steps = 0, 0, 0, 0, 0, 0, 0

local function left() return most - messages - events - lookups - summaries - runs - steps end

-- Returns: whether nothing of the life is left.
local function bury(dead)
  local life, due, user = sub(dead, 6, 9), sub(dead, 10, 17), sub(dead, 18)
  messages = messages + delete_messages(h, z, life, beginning(z, life .. 's', left()))
  if left() > 0 then
    local old = beginning(z, life .. 'v', left())
    with_all('ZREM', z, old)
    events = events + #old
  end
  if left() > 0 then
    local old = beginning(z, life .. 'm', left())
    with_all('HDEL', h, old)
    with_all('ZREM', z, old)
    summaries = summaries + #old
  end
  if left() > 0 then runs = runs + delete_runs(h, z, p, digest, life, beginning(z, life .. 'r', left())) end
  if left() > 0 then steps = steps + delete_steps(h, z, life .. 't', left()) end
  if left() <= 0 then return false end
  call('ZREM', p, 'Q' .. due .. 'L' .. digest .. life)
  with_all('ZREM', p, beginning(p, leaving(digest, life, '')))
  if not forgets then return false end
  lookups = lookups + delete_lookups(h, z, life, left())
  if left() <= 0 then return false end
  call('ZREM', z, dead)
  if user ~= '' then call('ZREM', p, 'E' .. user .. 'L' .. digest .. life) end
  return true
end

local ended = call('HMGET', h, 'inc', 'ended')
local dead = {}
if ARGV[2] ~= '' or not ended[1] then dead = beginning(z, NAME .. 'd' .. ARGV[2], MOST) end
for _, each in ipairs(dead) do
  if left() <= 0 or not bury(each) then break end
end
if #dead == 0 then
  call('ZREM', p, ARGV[5])
end
if forgets and not ended[1] and ended[2] and #beginning(z, NAME .. 'd', 1) == 0 then
  call('DEL', h, z)
  call('ZREM', p, 'Q' .. ended[2] .. 'N' .. digest)
  names = 1
end
return { messages, events, lookups, summaries, names, runs, steps }
