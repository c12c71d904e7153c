UPDATE groups t SET
    cursor = u.cursor, trims_seen = u.trims_seen, token = u.token
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]
) AS u(
    name, source, cursor, trims_seen, token
) OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source
