INSERT INTO answers (
    ns, actor, key, request, expires_at, replies
)
SELECT
    $1, u.actor, u.key, u.request, u.expires_at, u.replies
FROM (SELECT
    unnest($2::text[]) AS actor, unnest($3::text[]) AS key, unnest($4::bytea[]) AS request,
    unnest($5::timestamptz[]) AS expires_at, unnest($6::json[]) AS replies
) u
