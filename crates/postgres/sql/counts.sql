SELECT queue, status, count(*) FROM tasks WHERE ns = $1 AND ($2::text IS NULL OR queue = $2) GROUP BY queue, status
