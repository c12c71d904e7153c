UPDATE entries t SET
    set_at = u.set_at, expires_at = u.expires_at, value = u.value, expires_minute = u.expires_minute
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::timestamptz[], $4::timestamptz[], $5::json[], $6::bigint[]
) AS u(
    key, set_at, expires_at, value, expires_minute
) OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
