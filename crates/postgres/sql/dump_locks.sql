SELECT
    t.key, t.token, t.owner, t.acquired_at, t.expires_at, t.forget_at, t.forget_hour
FROM locks t WHERE t.ns = $1 ORDER BY t.key
