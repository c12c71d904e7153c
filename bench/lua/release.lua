-- Frees a lock that is held with this token. Answers whether it was.
-- KEYS: lock. ARGV: token.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
