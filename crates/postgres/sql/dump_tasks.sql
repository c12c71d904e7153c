SELECT {task}
FROM tasks t WHERE t.ns = $1 ORDER BY t.id
