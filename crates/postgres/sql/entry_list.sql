SELECT
    t.key, t.set_at, t.expires_at, t.value, t.expires_minute
FROM entries t
WHERE t.ns = $1 AND t.key > $2 AND t.key >= $3 AND starts_with(t.key, $3) AND t.expires_at > $5
ORDER BY t.key LIMIT $4
