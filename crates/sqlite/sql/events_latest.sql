SELECT max(position) FROM events WHERE ns = ?1 AND category = ?2
