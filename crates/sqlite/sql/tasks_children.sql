SELECT * FROM tasks WHERE ns = ?1 AND parent = ?2 AND id > ?3 ORDER BY id
