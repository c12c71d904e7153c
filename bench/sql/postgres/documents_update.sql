UPDATE documents t
SET revision = t.revision + 1, updated_at = now(), body = u.body
FROM unnest($1::text[], $2::bigint[], $3::json[]) AS u(name, revision, body) CROSS JOIN LATERAL (
    SELECT ctid FROM documents WHERE ns = 1 AND kind = 'session' AND name = u.name AND revision = u.revision OFFSET 0
) found
WHERE t.ctid = found.ctid
