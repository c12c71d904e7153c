UPDATE answers t SET
    request = u.request, expires_at = u.expires_at, replies = u.replies
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS actor, unnest($3::text[]) AS key, unnest($4::bytea[]) AS request,
    unnest($5::timestamptz[]) AS expires_at, unnest($6::json[]) AS replies
OFFSET 0) u
WHERE t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
