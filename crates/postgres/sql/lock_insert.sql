INSERT INTO locks (
    ns, key, token, owner, acquired_at, expires_at, session, session_token, forget_at, forget_hour
)
SELECT
    $1, u.key, u.token, u.owner, u.acquired_at, u.expires_at,
    u.session, CASE WHEN u.session IS NOT NULL THEN u.token END, u.forget_at, u.forget_hour
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::bigint[],
    $8::timestamptz[], $9::bigint[]
) AS u(
    key, token, owner, acquired_at, expires_at, session, forget_at, forget_hour
)
