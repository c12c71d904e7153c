SELECT
    t.key, t.token, t.owner, t.acquired_at, t.expires_at, t.forget_at, t.forget_hour
FROM locks t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(key) OFFSET 0) u
    ON t.ns = u.ns AND t.key = u.key
ORDER BY t.key
