-- Starts the first ready task. Answers its id and its row, or nothing.
-- KEYS: ready tasks, running tasks of the queue. ARGV: prefix, lease, time, token, event.
local first = redis.call('ZPOPMIN', KEYS[1])[1]
if not first then return nil end
local id = string.sub(first, -36)
local task = ARGV[1] .. 't' .. id
redis.call('HSET', task, 'status', 'running', 'lease', ARGV[2], 'token', ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[3], id)
redis.call('RPUSH', ARGV[1] .. 'Etask/' .. id, ARGV[5])
return { id, redis.call('HGET', task, 'row') }
