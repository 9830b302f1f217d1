-- Bodies of messages whose entries are known, as long as nothing happened to them.
--
-- KEYS  the session's h
-- ARGV  the full key; life and shape; seqs
-- Reply: the bodies; nil when the session is another or was changed.

local rec, life, _, _, shape = living(KEYS[1], ARGV[1])
if not rec or life ~= ARGV[2] or shape ~= ARGV[3] then return nil end
local seqs = {}
for at = 4, #ARGV do seqs[at - 3] = ARGV[at] end
return bodies_of(KEYS[1], life, seqs)
