SELECT count(*) FROM deliveries WHERE ns = $1 AND name = $2 AND source = $3
