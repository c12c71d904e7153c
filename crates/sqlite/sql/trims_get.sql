SELECT number, position FROM trims WHERE ns = ?1 AND category = ?2 ORDER BY number
