SELECT
    t.key, t.open, t.holder, t.nominee
FROM exclusives t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(key) OFFSET 0) u
    ON t.ns = u.ns AND t.key = u.key
ORDER BY t.key
