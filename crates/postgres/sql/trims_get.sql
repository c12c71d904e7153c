SELECT
    t.category, t.trims
FROM trims t JOIN unnest($2::text[]) AS u(category)
    ON t.ns = $1 AND t.category = u.category
ORDER BY t.category
