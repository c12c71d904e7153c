SELECT
    t.queue, t.owner, t.at
FROM pollers t WHERE t.ns = $1 ORDER BY t.queue, t.owner
