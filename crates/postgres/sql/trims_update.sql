UPDATE trims t SET
    trims = u.trims
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::json[]
) AS u(
    category, trims
) OFFSET 0) u
WHERE t.ns = u.ns AND t.category = u.category
