SELECT 1 FROM task_places WHERE ns = ?1 AND by = ?2 LIMIT 1
