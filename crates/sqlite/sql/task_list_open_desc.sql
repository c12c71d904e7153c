SELECT * FROM tasks INDEXED BY tasks_open
WHERE ns = ?1 AND finished_at IS NULL AND (created_at, id) < (?2, ?3)
ORDER BY created_at DESC, id DESC
