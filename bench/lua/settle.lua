-- Appends, puts a document, frees a lock and completes a task, if lock and task are held. Answers whether they were.
-- KEYS: task, running tasks, ended tasks, its events, stream, document, lock.
-- ARGV: token, output, event, id, time, appended event, body, token of the lock.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[7]) ~= ARGV[8] then return 0 end
redis.call('RPUSH', KEYS[5], ARGV[6])
redis.call('HSET', KEYS[6], 'body', ARGV[7])
redis.call('HINCRBY', KEYS[6], 'revision', 1)
redis.call('DEL', KEYS[7])
redis.call('HSET', KEYS[1], 'status', 'completed', 'output', ARGV[2])
redis.call('HDEL', KEYS[1], 'token', 'lease')
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
redis.call('RPUSH', KEYS[4], ARGV[3])
return 1
