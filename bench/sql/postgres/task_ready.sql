SELECT id, input
FROM tasks
WHERE ns = 1 AND queue = $1 AND turn = 'ready'
ORDER BY priority, run_at, id
LIMIT 1
FOR UPDATE SKIP LOCKED
