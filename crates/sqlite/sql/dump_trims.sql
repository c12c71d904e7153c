SELECT category, number, position FROM trims WHERE ns = ?1 ORDER BY category, number
