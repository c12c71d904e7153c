SELECT name, source, cursor, trims_seen, token FROM groups WHERE ns = ?1 ORDER BY name, source LIKE 'category:%', source
