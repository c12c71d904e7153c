SELECT * FROM tasks WHERE ns = ?1 AND thread = ?2
