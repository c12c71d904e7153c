-- Tasks whose stream has other events than its head says.
SELECT format('task %s: its stream should hold events %d to %d, and holds %d', t.id, t.oldest_seq + 1, t.last_seq,
    (SELECT count(*) FROM events e WHERE e.ns = t.ns AND e.stream = 'task/' || t.id))
FROM tasks t
WHERE t.last_seq - t.oldest_seq <> (
    SELECT count(*) FROM events e
    WHERE e.ns = t.ns AND e.stream = 'task/' || t.id AND e.seq > t.oldest_seq AND e.seq <= t.last_seq
) LIMIT 20
