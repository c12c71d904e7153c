-- The first event of a stream that is not older than a time, and the last number of the stream.
SELECT e.seq, e.at, coalesce(s.last_seq, k.last_seq, 0)
FROM (VALUES (1)) AS one(n)
LEFT JOIN streams s ON s.ns = $1 AND s.stream = $2
LEFT JOIN tasks k ON k.ns = $1 AND k.id = $3
LEFT JOIN LATERAL (
    SELECT seq, at FROM events WHERE ns = $1 AND stream = $2 AND at >= $4 ORDER BY seq LIMIT 1
) e ON true
