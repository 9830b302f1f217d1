-- Where tails and openings end (`stores.walk`), as far as it takes to read no more than that.

local USUAL_TOKENS = 40 -- Tokens of a message, as a guess of how many entries to read at once.

local function chunk_of(most, most_tokens, cap)
  local chunk = most + 1
  if most_tokens >= 0 then chunk = math.min(chunk, math.floor(most_tokens / USUAL_TOKENS) + 8) end
  return math.min(chunk, cap)
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
