SELECT name, source, cursor, trims_seen, token FROM groups WHERE ns = ?1 AND name = ?2 AND source = ?3
