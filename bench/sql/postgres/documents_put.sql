INSERT INTO documents (ns, kind, name, revision, updated_at, labels, body)
SELECT 1, u.kind, u.name, 1, now(), '{}', u.body
FROM unnest($1::text[], $2::text[], $3::json[]) AS u(kind, name, body)
ON CONFLICT (ns, kind, name) DO UPDATE
SET revision = documents.revision + 1, updated_at = excluded.updated_at, body = excluded.body
