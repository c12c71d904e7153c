SELECT
    t.name, t.source, t.cursor, t.trims_seen, t.token
FROM groups t JOIN unnest($2::text[], $3::text[]) AS u(name, source)
    ON t.ns = $1 AND t.name = u.name AND t.source = u.source
ORDER BY t.name, t.source
