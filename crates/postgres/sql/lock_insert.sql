INSERT INTO locks (
    ns, key, token, owner, acquired_at, expires_at, session, session_token, forget_at, forget_hour
)
SELECT
    $1, u.key, u.token, u.owner, u.acquired_at, u.expires_at,
    u.session, CASE WHEN u.session IS NOT NULL THEN u.token END, u.forget_at, u.forget_hour
FROM (SELECT
    unnest($2::text[]) AS key, unnest($3::bigint[]) AS token, unnest($4::text[]) AS owner,
    unnest($5::timestamptz[]) AS acquired_at, unnest($6::timestamptz[]) AS expires_at,
    unnest($7::bigint[]) AS session, unnest($8::timestamptz[]) AS forget_at, unnest($9::bigint[]) AS forget_hour
) u
