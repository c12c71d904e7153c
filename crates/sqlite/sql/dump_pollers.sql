SELECT queue, owner, at FROM pollers WHERE ns = ?1 ORDER BY queue, owner
