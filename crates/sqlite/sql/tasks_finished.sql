SELECT * FROM tasks WHERE ns = ?1 AND (finished_at, id) > (?2, ?3) AND finished_at <= ?4 ORDER BY finished_at, id
