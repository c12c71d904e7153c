SELECT revision, updated_at, body
FROM documents
WHERE ns = 1 AND kind = 'checkpoint' AND name = $1
