SELECT key, token, owner, acquired_at, expires_at, forget_at FROM locks WHERE ns = ?1 AND key > ?2 AND key >= ?3 ORDER BY key
