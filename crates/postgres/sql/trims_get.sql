SELECT
    t.category, t.trims
FROM trims t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(category) OFFSET 0) u
    ON t.ns = u.ns AND t.category = u.category
ORDER BY t.category
