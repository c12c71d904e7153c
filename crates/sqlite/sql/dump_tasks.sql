SELECT * FROM tasks WHERE ns = ?1 ORDER BY id
