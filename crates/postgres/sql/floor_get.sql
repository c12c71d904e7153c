SELECT
    t.kind, t.revision
FROM floors t JOIN unnest($2::text[]) AS u(kind)
    ON t.ns = $1 AND t.kind = u.kind
ORDER BY t.kind
