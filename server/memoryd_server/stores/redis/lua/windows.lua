-- Where tails and openings end: the rules of `stores.walk`, next to the data.

local USUAL_TOKENS = 40 -- Tokens of a message, as a guess of how many entries to read at once.

local function chunk_of(most, most_tokens, cap)
  local chunk = most + 1
  if most_tokens >= 0 then chunk = math.min(chunk, math.floor(most_tokens / USUAL_TOKENS) + 8) end
  return math.min(chunk, cap)
end

-- A tail of a number of messages of which nothing is removed and whose newest group is shorter than that: what most
-- windows are, so without a look at each message. Nil where it is another.
local function usual_tail(z, life, usabilities, vis, most, most_tokens, cap)
  if #usabilities > 1 or #vis > 16 or most_tokens >= 0 or most > cap then return nil end
  local prefix = life .. usabilities
  local members = descending(z, '(' .. prefix .. '\255', '[' .. prefix .. sub(vis, 1, 8), most)
  if #members == most and head_of(members[1]) == head_of(members[most]) then return nil end
  return members
end

-- Goes on with a tail of which so many messages, so many tokens and the newest head are known.
-- Returns: members in reading order, and whether the tail ends with them.
local function take_tail(walk, most, most_tokens, cap, count, tokens, newest)
  local taken = {}
  local is_full = count >= most or (most_tokens >= 0 and tokens >= most_tokens)
  while #taken < cap do
    local member = walk()
    if not member then return taken, true end
    local head = head_of(member)
    newest = newest or head
    if is_full and head ~= newest then return taken, true end
    taken[#taken + 1] = member
    count = count + 1
    tokens = tokens + tokens_in(member)
    is_full = count >= most or (most_tokens >= 0 and tokens >= most_tokens)
    if is_full and head ~= newest then return taken, true end
  end
  return taken, false
end

-- Likewise with an opening. Returns: members by seq.
local function take_opening(walk, most, most_tokens, cap, count, tokens)
  local taken = {}
  while #taken < cap do
    local member = walk()
    if not member then return taken, true end
    taken[#taken + 1] = member
    count = count + 1
    tokens = tokens + tokens_of(member)
    if 2 * count >= most or (most_tokens >= 0 and 2 * tokens >= most_tokens) then return taken, true end
  end
  return taken, false
end
