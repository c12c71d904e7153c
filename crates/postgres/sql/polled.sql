SELECT max(at) FROM pollers WHERE ns = $1 AND queue = $2
