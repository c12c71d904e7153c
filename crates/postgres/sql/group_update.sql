UPDATE groups t SET
    cursor = u.cursor, trims_seen = u.trims_seen, token = u.token
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS name, unnest($3::text[]) AS source, unnest($4::text[]) AS cursor,
    unnest($5::bigint[]) AS trims_seen, unnest($6::bigint[]) AS token
OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source
