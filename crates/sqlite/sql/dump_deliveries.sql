SELECT name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key FROM deliveries WHERE ns = ?1 ORDER BY name, source LIKE 'category:%', source, position
