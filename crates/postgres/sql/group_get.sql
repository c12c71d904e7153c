SELECT
    t.name, t.source, t.cursor, t.trims_seen, t.token
FROM groups t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(name, source) OFFSET 0) u
    ON t.ns = u.ns AND t.name = u.name AND t.source = u.source
ORDER BY t.name, t.source
