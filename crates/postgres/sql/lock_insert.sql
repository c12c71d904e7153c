INSERT INTO locks (
    ns, key, token, owner, acquired_at, expires_at, forget_at, forget_hour
)
SELECT
    $1, u.key, u.token, u.owner, u.acquired_at, u.expires_at, u.forget_at, u.forget_hour
FROM unnest(
    $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[]
) AS u(
    key, token, owner, acquired_at, expires_at, forget_at, forget_hour
)
