SELECT key, token, owner, acquired_at, expires_at, forget_at FROM locks
WHERE ns = ?1 AND forget_hour <= ?4 AND forget_at <= ?2 ORDER BY forget_hour LIMIT ?3
