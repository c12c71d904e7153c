SELECT stream, seq, position, at, type, actor, data FROM events
WHERE ns = ?1 AND category = ?2 AND position > ?3 ORDER BY position LIMIT ?4
