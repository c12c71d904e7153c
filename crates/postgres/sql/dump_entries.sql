SELECT
    t.key, t.set_at, t.expires_at, t.value, t.expires_minute
FROM entries t WHERE t.ns = $1 ORDER BY t.key
