SELECT
    t.queue, t.paused
FROM queues t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(queue) OFFSET 0) u
    ON t.ns = u.ns AND t.queue = u.queue
ORDER BY t.queue
