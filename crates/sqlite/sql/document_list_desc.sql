SELECT kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
FROM documents WHERE ns = ?1 AND kind = ?2 AND name < ?3 ORDER BY name DESC
