-- The next tasks of each of some queues to which something happens by itself. `$5` is the minute of `$3`.
SELECT {task}
FROM unnest($2::text[]) AS q(queue) CROSS JOIN LATERAL (
    (SELECT ns, id FROM tasks WHERE ns = $1 AND queue = q.queue AND timer > $3 ORDER BY timer, id LIMIT $4)
    UNION
    (SELECT ns, id FROM tasks WHERE ns = $1 AND queue = q.queue AND lease_minute >= $5 AND owner IS NOT NULL
        AND lease_expires_at > $3
        ORDER BY lease_expires_at, id LIMIT $4)
) f JOIN tasks t ON t.ns = f.ns AND t.id = f.id
