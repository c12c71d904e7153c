-- Queues whose counted tasks are not those that are there.
WITH there AS (SELECT ns, queue, status, count(*) AS tasks FROM tasks GROUP BY ns, queue, status)
SELECT format('queue %s: %d tasks are %s, but %d are counted', queue, sum(there), status, sum(counted))
FROM (
    SELECT ns, queue, status, tasks AS there, 0 AS counted FROM there
    UNION ALL
    SELECT ns, queue, status, 0, tasks FROM counts
)
GROUP BY ns, queue, status HAVING sum(there) <> sum(counted) LIMIT 20
