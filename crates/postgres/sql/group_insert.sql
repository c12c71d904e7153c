INSERT INTO groups (
    ns, name, source, cursor, trims_seen, token
)
SELECT
    $1, u.name, u.source, u.cursor, u.trims_seen, u.token
FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]
) AS u(
    name, source, cursor, trims_seen, token
)
