-- The bodies only if they are not larger than ?4, and how large they are.
SELECT coalesce(octet_length(body), octet_length(content), 0),
    kind, name, revision, schema_version, updated_at, expires_at, labels, content_type,
    CASE WHEN octet_length(body) <= ?4 THEN body END, CASE WHEN octet_length(content) <= ?4 THEN content END
FROM documents WHERE ns = ?1 AND kind = ?2 AND name = ?3
