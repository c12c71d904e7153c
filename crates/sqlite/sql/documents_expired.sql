SELECT kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
FROM documents WHERE ns = ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3
