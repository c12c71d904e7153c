SELECT queue, count(*) FROM tasks WHERE ns = $1 AND finished_at > $2 GROUP BY queue
