SELECT name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
FROM deliveries WHERE ns = ?1 AND name = ?2 AND source = ?3 AND visible_at > ?4 ORDER BY visible_at, position
