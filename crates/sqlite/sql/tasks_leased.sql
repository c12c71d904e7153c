SELECT * FROM tasks
WHERE ns = ?1 AND queue = ?2 AND owner IS NOT NULL AND lease_expires_at BETWEEN ?3 AND ?4
ORDER BY lease_expires_at
