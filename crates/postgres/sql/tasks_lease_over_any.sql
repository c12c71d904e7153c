-- The first tasks whose lease is over. `$4` is the minute of `$2`.
SELECT {task}
FROM tasks t WHERE t.ns = $1 AND t.lease_minute <= $4 AND t.owner IS NOT NULL AND t.lease_expires_at <= $2
ORDER BY t.lease_expires_at, t.id LIMIT $3
FOR UPDATE SKIP LOCKED
