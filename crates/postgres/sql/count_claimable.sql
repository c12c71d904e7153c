-- What could be claimed now, were the queue not paused, and since when.
SELECT queue, count(*), min(run_at) FROM tasks
WHERE ns = $1 AND ($2::text IS NULL OR queue = $2)
    AND (turn = 'ready' OR turn = 'later' AND run_at <= $3 AND exclusive_key IS NULL)
    AND (expires_at IS NULL OR expires_at > $3)
GROUP BY queue
