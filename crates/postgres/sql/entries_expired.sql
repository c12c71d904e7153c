SELECT
    t.key, t.set_at, t.expires_at, t.value, t.expires_minute
FROM entries t WHERE t.ns = $1 AND t.expires_minute <= $4 AND t.expires_at <= $2
ORDER BY t.expires_minute LIMIT $3
FOR UPDATE SKIP LOCKED
