UPDATE trims t SET
    trims = u.trims
FROM (SELECT $1::bigint AS ns, unnest($2::text[]) AS category, unnest($3::json[]) AS trims OFFSET 0) u
WHERE t.ns = u.ns AND t.category = u.category
