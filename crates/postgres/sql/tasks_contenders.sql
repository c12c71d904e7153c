-- The first in line for an exclusive key, those in some queues left out.
SELECT {task}
FROM tasks t
WHERE t.ns = $1 AND t.exclusive_key = $2 AND t.turn = 'in_line' AND t.queue <> ALL ($3)
    AND (t.expires_at IS NULL OR t.expires_at > $4)
ORDER BY t.priority, t.run_at, t.id LIMIT $5
