SELECT
    t.queue, t.paused
FROM queues t JOIN unnest($2::text[]) AS u(queue)
    ON t.ns = $1 AND t.queue = u.queue
ORDER BY t.queue
