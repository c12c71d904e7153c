INSERT INTO entries (
    ns, key, set_at, expires_at, value, expires_minute
)
SELECT
    $1, u.key, u.set_at, u.expires_at, u.value, u.expires_minute
FROM unnest(
    $2::text[], $3::timestamptz[], $4::timestamptz[], $5::json[], $6::bigint[]
) AS u(
    key, set_at, expires_at, value, expires_minute
)
