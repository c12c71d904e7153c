-- Inserts or replaces a document; answers its revision, or 0 if it does not have the expected one.
-- KEYS: document. ARGV: body, expected revision or an empty text.
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'body', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'revision', 1)
