SELECT min(lease_expires_at) FROM tasks WHERE ns = ?1 AND queue = ?2 AND owner IS NOT NULL
