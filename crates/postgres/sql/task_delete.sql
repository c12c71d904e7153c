DELETE FROM tasks t USING unnest($2::uuid[]) AS u(id)
WHERE t.ns = $1 AND t.id = u.id
