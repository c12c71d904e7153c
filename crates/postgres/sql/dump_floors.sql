SELECT
    t.kind, t.revision
FROM floors t WHERE t.ns = $1 ORDER BY t.kind
