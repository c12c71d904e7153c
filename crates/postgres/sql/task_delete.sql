DELETE FROM tasks t USING (SELECT $1::bigint AS ns, unnest($2::uuid[]) AS id OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
