-- The first tasks of each of some queues whose lease is over. `$5` is the minute of `$3`.
SELECT {task}
FROM unnest($2::text[]) AS q(queue) CROSS JOIN LATERAL (
    SELECT * FROM tasks WHERE ns = $1 AND queue = q.queue AND lease_minute <= $5 AND owner IS NOT NULL
        AND lease_expires_at <= $3
    ORDER BY lease_expires_at, id LIMIT $4
    FOR UPDATE SKIP LOCKED
) t
