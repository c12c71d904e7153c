SELECT * FROM tasks WHERE ns = ?1 AND queue = ?2 AND timer <= ?3 ORDER BY timer, id
