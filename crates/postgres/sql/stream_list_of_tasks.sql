SELECT 'task/' || id AS stream, last_seq, oldest_seq FROM tasks
WHERE ns = $1 AND id > $2 AND starts_with('task/' || id, $3) ORDER BY id LIMIT $4
