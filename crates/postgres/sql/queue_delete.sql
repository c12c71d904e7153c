DELETE FROM queues t USING unnest($2::text[]) AS u(queue)
WHERE t.ns = $1 AND t.queue = u.queue
