SELECT
    t.key, t.token, t.owner, t.acquired_at, t.expires_at, t.forget_at, t.forget_hour
FROM locks t
WHERE t.ns = $1 AND t.key > $2 AND t.key >= $3 AND starts_with(t.key, $3) AND t.owner IS NOT NULL AND t.expires_at > $5
ORDER BY t.key LIMIT $4
