SELECT * FROM tasks WHERE ns = ?1 AND turn = 'ready'
