SELECT
    t.kind, t.name, t.revision, t.schema_version, t.updated_at, t.expires_at, t.labels, t.content_type, t.body,
    t.content
FROM documents t JOIN (
    SELECT $1::bigint AS ns, * FROM unnest((SELECT $2::text[]), (SELECT $3::text[])) AS u(kind, name) OFFSET 0
) u
    ON t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
ORDER BY t.kind, t.name
