UPDATE exclusives t SET
    open = u.open, holder = u.holder, nominee = u.nominee
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::bigint[], $4::uuid[], $5::uuid[]
) AS u(
    key, open, holder, nominee
) OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
