UPDATE entries t SET
    set_at = u.set_at, expires_at = u.expires_at, value = u.value, expires_minute = u.expires_minute
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS key, unnest($3::timestamptz[]) AS set_at, unnest($4::timestamptz[]) AS expires_at,
    unnest($5::json[]) AS value, unnest($6::bigint[]) AS expires_minute
OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
