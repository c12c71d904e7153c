SELECT * FROM tasks WHERE ns = ?1 AND (id = ?2 OR root = ?2)
