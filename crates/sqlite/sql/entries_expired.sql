SELECT key, set_at, expires_at, value FROM entries
WHERE ns = ?1 AND expires_minute <= ?4 AND expires_at <= ?2 ORDER BY expires_minute LIMIT ?3
