SELECT key, set_at, expires_at, value FROM entries WHERE ns = ?1 ORDER BY key
