SELECT queue, count(*) FROM task_places p CROSS JOIN tasks ON tasks.ns = p.ns AND tasks.id = p.task
WHERE p.ns = ?1 AND p.by = 'finished' AND p.key = '' AND p.first > ?2 GROUP BY queue
