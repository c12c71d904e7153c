DELETE FROM tasks t USING (SELECT $1::bigint AS ns, * FROM unnest($2::uuid[]) AS u(id) OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
