SELECT queue, owner, at FROM pollers WHERE ns = $1 AND at > $2 ORDER BY queue, owner
