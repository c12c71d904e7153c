INSERT INTO trims (
    ns, category, trims
)
SELECT
    $1, u.category, u.trims
FROM unnest(
    $2::text[], $3::json[]
) AS u(
    category, trims
)
