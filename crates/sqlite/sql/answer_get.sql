SELECT actor, key, request, expires_at, replies FROM answers WHERE ns = ?1 AND actor = ?2 AND key = ?3
