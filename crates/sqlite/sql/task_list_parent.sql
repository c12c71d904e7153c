SELECT * FROM tasks WHERE ns = ?1 AND parent = ?2
