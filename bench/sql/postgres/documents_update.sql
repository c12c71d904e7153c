UPDATE documents t
SET revision = t.revision + 1, updated_at = now(), body = u.body
FROM unnest($1::text[], $2::bigint[], $3::json[]) AS u(name, revision, body)
WHERE t.ns = 1 AND t.kind = 'session' AND t.name = u.name AND t.revision = u.revision
