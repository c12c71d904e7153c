SELECT
    t.name, t.source, t.cursor, t.trims_seen, t.token
FROM groups t WHERE t.ns = $1 ORDER BY t.name, t.source
