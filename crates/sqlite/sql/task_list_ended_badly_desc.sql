SELECT * FROM tasks INDEXED BY tasks_ended_badly
WHERE ns = ?1 AND status IN ('failed', 'cancelled') AND (created_at, id) < (?2, ?3)
ORDER BY created_at DESC, id DESC
