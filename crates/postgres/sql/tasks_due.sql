-- The first tasks of each of some queues whose timer has come.
SELECT {task}
FROM unnest($2::text[]) AS q(queue) CROSS JOIN LATERAL (
    SELECT * FROM tasks WHERE ns = $1 AND queue = q.queue AND timer <= $3
    ORDER BY timer, id LIMIT $4
    FOR UPDATE SKIP LOCKED
) t
