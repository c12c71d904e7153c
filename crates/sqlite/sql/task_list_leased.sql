SELECT * FROM tasks WHERE ns = ?1 AND owner IS NOT NULL
