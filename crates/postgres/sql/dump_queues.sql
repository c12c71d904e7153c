SELECT
    t.queue, t.paused
FROM queues t WHERE t.ns = $1 ORDER BY t.queue
