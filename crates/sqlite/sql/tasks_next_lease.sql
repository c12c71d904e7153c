SELECT * FROM tasks WHERE ns = ?1 AND queue = ?2 AND owner IS NOT NULL AND lease_expires_at > ?3 ORDER BY lease_expires_at, id
