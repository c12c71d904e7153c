UPDATE documents
SET revision = revision + 1, updated_at = now(), body = $3
WHERE ns = 1 AND kind = 'session' AND name = $1 AND revision = $2
