UPDATE pollers t SET
    at = u.at
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::text[], $4::timestamptz[]
) AS u(
    queue, owner, at
) OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue AND t.owner = u.owner
