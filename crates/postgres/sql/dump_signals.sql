SELECT
    t.task, t.kept
FROM signals t WHERE t.ns = $1 ORDER BY t.task
