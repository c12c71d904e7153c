-- Tasks that ended no later than a time that depends on the status, after a place.
SELECT {task}
FROM tasks t
WHERE t.ns = $1 AND (t.finished_at, t.id) > ($4, $5)
    AND EXISTS (SELECT 1 FROM unnest($2::text[], $3::timestamptz[]) AS r(status, before)
                WHERE r.status = t.status AND t.finished_at <= r.before)
ORDER BY t.finished_at, t.id LIMIT $6
