-- The first ready tasks of each of some queues.
SELECT {task}
FROM unnest($2::text[]) AS q(queue) CROSS JOIN LATERAL (
    SELECT * FROM tasks
    WHERE ns = $1 AND queue = q.queue AND turn = 'ready' AND (expires_at IS NULL OR expires_at > $3)
    ORDER BY priority, run_at, id LIMIT $4
    FOR UPDATE SKIP LOCKED
) t
