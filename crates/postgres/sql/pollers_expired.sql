SELECT
    t.queue, t.owner, t.at
FROM pollers t WHERE t.ns = $1 AND t.at <= $2
ORDER BY t.queue, t.owner LIMIT $3
FOR UPDATE SKIP LOCKED
