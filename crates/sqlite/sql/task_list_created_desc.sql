SELECT * FROM tasks INDEXED BY tasks_created
WHERE ns = ?1 AND (created_at, id) < (?2, ?3)
ORDER BY created_at DESC, id DESC
