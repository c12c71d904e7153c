SELECT * FROM tasks
WHERE ns = ?1 AND finished_at BETWEEN ?2 AND ?3
ORDER BY finished_at
