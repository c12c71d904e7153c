-- What could be claimed now, were the queue not paused, and since when.
SELECT count(*), min(run_at) FROM (
    SELECT run_at FROM tasks
    WHERE ns = ?1 AND queue = ?2 AND turn = 'ready' AND (expires_at IS NULL OR expires_at > ?3)
    UNION ALL
    SELECT run_at FROM task_places p CROSS JOIN tasks ON tasks.ns = p.ns AND tasks.id = p.task
    WHERE p.ns = ?1 AND p.by = 'timer' AND p.key = ?2 AND p.first <= ?3
        AND turn = 'later' AND run_at <= ?3 AND exclusive_key IS NULL AND (expires_at IS NULL OR expires_at > ?3)
)
