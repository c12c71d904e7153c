SELECT actor, key, request, expires_at, replies FROM answers WHERE ns = ?1 ORDER BY actor, key
