SELECT coalesce(octet_length(body), 0) + coalesce(octet_length(content), 0)
FROM documents WHERE ns = ?1 AND kind = ?2 AND name = ?3
