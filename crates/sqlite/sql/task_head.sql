SELECT last_seq, oldest_seq, oldest_at FROM tasks WHERE ns = ?1 AND id = ?2
