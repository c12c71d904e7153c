SELECT
    t.kind, t.name, t.revision, t.schema_version, t.updated_at, t.expires_at, t.labels, t.content_type, t.body,
    t.content
FROM documents t WHERE t.ns = $1 ORDER BY t.kind, t.name
