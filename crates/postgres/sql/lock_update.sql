UPDATE locks t SET
    token = u.token, owner = u.owner, acquired_at = u.acquired_at, expires_at = u.expires_at,
    session = u.session, session_token = CASE WHEN u.session IS NOT NULL THEN u.token END,
    forget_at = u.forget_at, forget_hour = u.forget_hour
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS key, unnest($3::bigint[]) AS token, unnest($4::text[]) AS owner,
    unnest($5::timestamptz[]) AS acquired_at, unnest($6::timestamptz[]) AS expires_at,
    unnest($7::bigint[]) AS session, unnest($8::timestamptz[]) AS forget_at, unnest($9::bigint[]) AS forget_hour
OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
