INSERT INTO entries (
    ns, key, set_at, expires_at, value, expires_minute
)
SELECT
    $1, u.key, u.set_at, u.expires_at, u.value, u.expires_minute
FROM (SELECT
    unnest($2::text[]) AS key, unnest($3::timestamptz[]) AS set_at, unnest($4::timestamptz[]) AS expires_at,
    unnest($5::json[]) AS value, unnest($6::bigint[]) AS expires_minute
) u
