DELETE FROM groups t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS name, unnest($3::text[]) AS source OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source
