SELECT
    t.key, t.open, t.holder, t.nominee
FROM exclusives t JOIN unnest($2::text[]) AS u(key)
    ON t.ns = $1 AND t.key = u.key
ORDER BY t.key
