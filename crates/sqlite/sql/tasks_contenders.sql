SELECT * FROM tasks WHERE ns = ?1 AND exclusive_key = ?2 AND turn = 'in_line' ORDER BY priority, run_at, id
