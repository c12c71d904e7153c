INSERT INTO documents (ns, kind, name, revision, updated_at, body)
VALUES (1, ?1, ?2, 1, ?3, ?4)
ON CONFLICT (ns, kind, name) DO UPDATE
SET revision = revision + 1, updated_at = excluded.updated_at, body = excluded.body
