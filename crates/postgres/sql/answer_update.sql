UPDATE answers t SET
    request = u.request, expires_at = u.expires_at, replies = u.replies
FROM unnest(
    $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::json[]
) AS u(
    actor, key, request, expires_at, replies
)
WHERE t.ns = $1 AND t.actor = u.actor AND t.key = u.key
