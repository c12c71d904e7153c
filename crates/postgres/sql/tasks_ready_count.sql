-- How many tasks of these queues are ready, held by other transactions or not; of each queue at most so many are counted.
SELECT count(*) FROM unnest($2::text[]) AS q(queue) CROSS JOIN LATERAL (
    SELECT 1 FROM tasks
    WHERE ns = $1 AND queue = q.queue AND turn = 'ready' AND (expires_at IS NULL OR expires_at > $3)
    LIMIT $4
) r
