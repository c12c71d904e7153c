-- A task that is ready, and its first event.
-- KEYS: task, ready tasks of its queue, its events. ARGV: row, place among the ready, event.
redis.call('HSET', KEYS[1], 'row', ARGV[1], 'status', 'pending')
redis.call('ZADD', KEYS[2], 0, ARGV[2])
redis.call('RPUSH', KEYS[3], ARGV[3])
