UPDATE trims t SET
    trims = u.trims
FROM unnest(
    $2::text[], $3::json[]
) AS u(
    category, trims
)
WHERE t.ns = $1 AND t.category = u.category
