INSERT INTO exclusives (
    ns, key, open, holder, nominee
)
SELECT
    $1, u.key, u.open, u.holder, u.nominee
FROM unnest(
    $2::text[], $3::bigint[], $4::uuid[], $5::uuid[]
) AS u(
    key, open, holder, nominee
)
