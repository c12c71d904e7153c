SELECT
    t.task, t.kept
FROM signals t JOIN unnest($2::uuid[]) AS u(task)
    ON t.ns = $1 AND t.task = u.task
ORDER BY t.task
