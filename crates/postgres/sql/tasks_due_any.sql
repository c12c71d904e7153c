-- The first tasks whose timer has come.
SELECT {task}
FROM tasks t WHERE t.ns = $1 AND t.timer <= $2
ORDER BY t.timer, t.id LIMIT $3
FOR UPDATE SKIP LOCKED
