UPDATE answers t SET
    request = u.request, expires_at = u.expires_at, replies = u.replies
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::json[]
) AS u(
    actor, key, request, expires_at, replies
) OFFSET 0) u
WHERE t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
