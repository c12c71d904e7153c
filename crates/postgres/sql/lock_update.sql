UPDATE locks t SET
    token = u.token, owner = u.owner, acquired_at = u.acquired_at, expires_at = u.expires_at,
    session = u.session, session_token = CASE WHEN u.session IS NOT NULL THEN u.token END,
    forget_at = u.forget_at, forget_hour = u.forget_hour
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::bigint[],
    $8::timestamptz[], $9::bigint[]
) AS u(
    key, token, owner, acquired_at, expires_at, session, forget_at, forget_hour
) OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
