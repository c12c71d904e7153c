INSERT INTO answers (
    ns, actor, key, request, expires_at, replies
)
SELECT
    $1, u.actor, u.key, u.request, u.expires_at, u.replies
FROM unnest(
    $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::json[]
) AS u(
    actor, key, request, expires_at, replies
)
