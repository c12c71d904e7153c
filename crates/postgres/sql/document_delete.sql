DELETE FROM documents t USING (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(kind, name) OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
