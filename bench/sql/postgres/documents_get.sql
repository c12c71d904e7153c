SELECT t.name, t.revision, t.updated_at, t.body
FROM unnest($1::text[]) AS u(name) CROSS JOIN LATERAL (
    SELECT * FROM documents WHERE ns = 1 AND kind = 'checkpoint' AND name = u.name OFFSET 0
) t
