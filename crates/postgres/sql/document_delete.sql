DELETE FROM documents t USING unnest($2::text[], $3::text[]) AS u(kind, name)
WHERE t.ns = $1 AND t.kind = u.kind AND t.name = u.name
