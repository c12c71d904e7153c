SELECT count(*)
FROM tasks
WHERE ns = 1 AND id >= $1 AND queue = $2 AND status = $3
