DELETE FROM documents t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS kind, unnest($3::text[]) AS name OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
