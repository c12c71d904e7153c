UPDATE exclusives t SET
    open = u.open, holder = u.holder, nominee = u.nominee
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS key, unnest($3::bigint[]) AS open, unnest($4::uuid[]) AS holder,
    unnest($5::uuid[]) AS nominee
OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
