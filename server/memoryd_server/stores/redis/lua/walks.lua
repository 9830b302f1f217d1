-- Walks over the entries of a session, and what members tell of these.

-- Of a member by seq.
local function tokens_of(member) return unpack_('>I8', member, 27) end
local function size_of(member) return unpack_('>I4', member, 35) end

-- Of a member in reading order.
local function head_of(member) return sub(member, 6, 13) end
local function tokens_in(member) return unpack_('>I8', member, 26) end
local function size_in(member) return unpack_('>I4', member, 34) end

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
