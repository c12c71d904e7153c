SELECT actor, key, request, expires_at, replies FROM answers WHERE ns = ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3
