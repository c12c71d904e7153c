SELECT coalesce(sum(tasks), 0) FROM counts WHERE ns = ?1 AND status = 'pending'
