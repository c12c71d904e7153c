-- Ends a task that is running with this token. Answers whether it was.
-- KEYS: task, running tasks, ended tasks of the queue, its events. ARGV: token, output, event, id, time.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'status', 'completed', 'output', ARGV[2])
redis.call('HDEL', KEYS[1], 'token', 'lease')
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
redis.call('RPUSH', KEYS[4], ARGV[3])
return 1
