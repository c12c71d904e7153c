UPDATE pollers t SET
    at = u.at
FROM unnest(
    $2::text[], $3::text[], $4::timestamptz[]
) AS u(
    queue, owner, at
)
WHERE t.ns = $1 AND t.queue = u.queue AND t.owner = u.owner
