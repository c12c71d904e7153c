INSERT INTO exclusives (
    ns, key, open, holder, nominee
)
SELECT
    $1, u.key, u.open, u.holder, u.nominee
FROM (SELECT
    unnest($2::text[]) AS key, unnest($3::bigint[]) AS open, unnest($4::uuid[]) AS holder,
    unnest($5::uuid[]) AS nominee
) u
