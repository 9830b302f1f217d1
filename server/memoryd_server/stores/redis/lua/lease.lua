-- Takes or renews a lease.
--
-- KEYS  the lease
-- ARGV  the holder; for how many milliseconds
-- Reply: 1; 0 while another holder has it.

local holder = call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
