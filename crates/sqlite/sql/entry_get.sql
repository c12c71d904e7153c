SELECT key, set_at, expires_at, value FROM entries WHERE ns = ?1 AND key = ?2
