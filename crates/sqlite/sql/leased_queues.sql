-- The queues of leased tasks: one step a queue, however many tasks it has.
WITH RECURSIVE named (queue) AS (
    SELECT min(queue) FROM tasks WHERE ns = ?1 AND owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM tasks WHERE ns = ?1 AND owner IS NOT NULL AND queue > named.queue)
    FROM named WHERE named.queue IS NOT NULL
)
SELECT queue FROM named WHERE queue IS NOT NULL
