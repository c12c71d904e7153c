SELECT * FROM tasks WHERE ns = ?1 AND exclusive_key IS NOT NULL AND turn = 'in_line'
