INSERT INTO documents (ns, kind, name, revision, updated_at, labels, body)
VALUES (1, $1, $2, 1, now(), '{}', $3)
ON CONFLICT (ns, kind, name) DO UPDATE
SET revision = documents.revision + 1, updated_at = excluded.updated_at, body = excluded.body
