DELETE FROM trims WHERE ns = ?1 AND category = ?2 AND position <= ?3
