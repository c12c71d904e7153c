SELECT id FROM tasks WHERE ns = ?1 AND parent = ?2 AND child_key = ?3
