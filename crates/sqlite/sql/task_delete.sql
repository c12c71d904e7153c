DELETE FROM tasks WHERE ns = ?1 AND id = ?2
