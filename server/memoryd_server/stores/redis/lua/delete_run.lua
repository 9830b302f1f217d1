-- Deletes a run that has ended, and up to so many rows. Steps that are left are a sweep's from then on, too.
--
-- KEYS  the session's h and z; its partition
-- ARGV  the full key; the incarnation; the session's digest; the run; the most rows, from 1
-- Reply: how many rows were deleted.

local h, z, p = KEYS[1], KEYS[2], KEYS[3]
local digest, run, most = ARGV[3], ARGV[4], tonumber(ARGV[5])
local rec, life, _, _, _, inc = living(h, ARGV[1])
if not rec or inc ~= ARGV[2] then return 0 end
local value = call('HGET', h, life .. 'r' .. run)
if value and not has_ended(value) then return 0 end
local deleted = value and delete_runs(h, z, p, digest, life, { by_creation(life, run, value) }) or 0
local steps = steps_of(life, run)
deleted = deleted + delete_steps(h, z, steps, most - deleted)
if #beginning(z, steps, 1) > 0 then
  call('ZADD', p, 0, leaving(digest, life, run))
else
  call('ZREM', p, leaving(digest, life, run))
end
return deleted
