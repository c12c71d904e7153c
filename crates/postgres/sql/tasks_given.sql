-- Tasks of a queue that a transaction gave to owners and that are as it left them, in the order in which they are given.
SELECT {task}
FROM tasks t
WHERE t.ns = $1 AND t.owner = ANY ($3::text[]) AND t.queue = $2 AND t.xmin = $4::integer
ORDER BY t.priority, t.run_at, t.id
