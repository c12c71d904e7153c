SELECT * FROM tasks WHERE ns = ?1 AND queue = ?2 AND turn = 'ready' ORDER BY priority, run_at, id
