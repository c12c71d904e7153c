SELECT id, position, stream, seq, at, type, actor, data FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3
