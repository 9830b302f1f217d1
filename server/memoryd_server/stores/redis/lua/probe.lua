-- Runs every command that the other scripts run, so that a user who may not is found out before a script ends halfway.
--
-- KEYS  two keys that nobody uses
-- Reply: 1.

local a, b = KEYS[1], KEYS[2]
call('TIME')
call('HSET', a, 'x', '1')
call('HSETNX', a, 'x', '1')
call('HGET', a, 'x')
call('HMGET', a, 'x')
call('HEXISTS', a, 'x')
call('HINCRBY', a, 'x', 1)
call('HDEL', a, 'x')
call('ZADD', a, 0, 'x')
beginning(a, 'x')
call('RENAME', a, b)
call('ZREM', b, 'x')
call('SET', a, 'x', 'PX', 1000)
call('GET', a)
call('EXISTS', a)
call('DEL', a)
return 1
