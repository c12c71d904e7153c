DELETE FROM deliveries WHERE ns = ?1 AND name = ?2 AND source = ?3 AND position = ?4
