DELETE FROM signals t USING unnest($2::uuid[]) AS u(task)
WHERE t.ns = $1 AND t.task = u.task
