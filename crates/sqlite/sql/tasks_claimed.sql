SELECT * FROM tasks WHERE ns = ?1 AND owner = ?2 AND claim_key = ?3 ORDER BY priority, run_at, id
