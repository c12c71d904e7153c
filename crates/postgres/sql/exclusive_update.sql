UPDATE exclusives t SET
    open = u.open, holder = u.holder, nominee = u.nominee
FROM unnest(
    $2::text[], $3::bigint[], $4::uuid[], $5::uuid[]
) AS u(
    key, open, holder, nominee
)
WHERE t.ns = $1 AND t.key = u.key
