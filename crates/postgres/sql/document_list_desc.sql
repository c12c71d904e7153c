SELECT
    t.kind, t.name, t.revision, t.schema_version, t.updated_at, t.expires_at, t.labels, t.content_type, t.body,
    t.content
FROM documents t
WHERE t.ns = $1 AND t.kind = $2 AND ($3::text IS NULL OR t.name < $3) AND t.name >= $4 AND starts_with(t.name, $4)
    AND ($5::jsonb IS NULL OR t.labels @> $5) AND (t.expires_at IS NULL OR t.expires_at > $6)
ORDER BY t.name DESC LIMIT $7
