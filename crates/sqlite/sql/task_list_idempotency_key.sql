SELECT * FROM tasks WHERE ns = ?1 AND idempotency_key = ?2
