INSERT INTO groups (
    ns, name, source, cursor, trims_seen, token
)
SELECT
    $1, u.name, u.source, u.cursor, u.trims_seen, u.token
FROM (SELECT
    unnest($2::text[]) AS name, unnest($3::text[]) AS source, unnest($4::text[]) AS cursor,
    unnest($5::bigint[]) AS trims_seen, unnest($6::bigint[]) AS token
) u
