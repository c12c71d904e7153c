SELECT
    t.key, t.set_at, t.expires_at, t.value, t.expires_minute
FROM entries t JOIN unnest($2::text[]) AS u(key)
    ON t.ns = $1 AND t.key = u.key
ORDER BY t.key
