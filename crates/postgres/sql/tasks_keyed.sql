-- Tasks of a queue with an exclusive key that are pending and due.
SELECT {task}
FROM tasks t
WHERE t.ns = $1 AND t.queue = $2 AND t.exclusive_key IS NOT NULL AND t.turn IN ('in_line', 'ready')
    AND ($3::uuid IS NULL OR t.id > $3)
ORDER BY t.id LIMIT $4
