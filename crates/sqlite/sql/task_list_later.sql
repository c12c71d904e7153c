SELECT * FROM tasks WHERE ns = ?1 AND timer IS NOT NULL AND turn = 'later'
