UPDATE groups t SET
    cursor = u.cursor, trims_seen = u.trims_seen, token = u.token
FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]
) AS u(
    name, source, cursor, trims_seen, token
)
WHERE t.ns = $1 AND t.name = u.name AND t.source = u.source
