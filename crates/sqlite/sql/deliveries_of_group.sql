SELECT name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
FROM deliveries WHERE ns = ?1 AND name = ?2 AND source = ?3 ORDER BY position
