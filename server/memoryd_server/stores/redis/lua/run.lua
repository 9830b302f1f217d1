-- A run.
--
-- KEYS  the session's h
-- ARGV  the full key; the run
-- Reply: record, and the run's place with its state and its head, or nil and nil; nil when there is no such session.

local rec, life = living(KEYS[1], ARGV[1])
if not rec then return nil end
local found = call('HMGET', KEYS[1], life .. 'r' .. ARGV[2], life .. 'h' .. ARGV[2])
return { rec, found[1], found[2] }
