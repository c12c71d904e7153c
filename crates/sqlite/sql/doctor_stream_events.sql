-- Streams that have other events than their head says.
SELECT format('stream %s should hold events %d to %d, and holds %d', s.stream, s.oldest_seq + 1, s.last_seq,
    (SELECT count(*) FROM events e WHERE e.ns = s.ns AND e.stream = s.stream))
FROM streams s
WHERE s.last_seq - s.oldest_seq <> (
    SELECT count(*) FROM events e
    WHERE e.ns = s.ns AND e.stream = s.stream AND e.seq > s.oldest_seq AND e.seq <= s.last_seq
) LIMIT 20
