SELECT id, position FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1
