SELECT
    t.kind, t.revision
FROM floors t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(kind) OFFSET 0) u
    ON t.ns = u.ns AND t.kind = u.kind
ORDER BY t.kind
