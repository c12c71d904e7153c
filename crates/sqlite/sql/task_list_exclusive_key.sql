SELECT * FROM tasks WHERE ns = ?1 AND exclusive_key = ?2
