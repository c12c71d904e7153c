-- How many tasks of these queues are ready, held by other transactions or not.
SELECT count(*) FROM (
    SELECT 1 FROM tasks
    WHERE ns = $1 AND queue = ANY ($2) AND turn = 'ready' AND (expires_at IS NULL OR expires_at > $3)
    LIMIT $4
) r
