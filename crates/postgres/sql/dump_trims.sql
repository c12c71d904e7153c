SELECT category, trims FROM trims WHERE ns = $1 ORDER BY category
