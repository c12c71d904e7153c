SELECT
    t.key, t.set_at, t.expires_at, t.value, t.expires_minute
FROM entries t JOIN (SELECT $1::bigint AS ns, * FROM unnest((SELECT $2::text[])) AS u(key) OFFSET 0) u
    ON t.ns = u.ns AND t.key = u.key
ORDER BY t.key
