SELECT at FROM events WHERE ns = $1 AND stream = $2 AND seq > $3 ORDER BY seq LIMIT 1
