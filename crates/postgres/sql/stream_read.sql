-- The head of a stream, and its events after a number, or from the oldest.
SELECT h.last_seq, h.oldest_seq, e.stream, e.seq, e.position, e.at, e.type, e.actor, e.data
FROM (
    SELECT coalesce(s.last_seq, k.last_seq, 0) AS last_seq, coalesce(s.oldest_seq, k.oldest_seq, 0) AS oldest_seq
    FROM (VALUES (1)) AS one(n)
    LEFT JOIN streams s ON s.ns = $1 AND s.stream = $2
    LEFT JOIN tasks k ON k.ns = $1 AND k.id = $3
) h LEFT JOIN LATERAL (
    SELECT * FROM events WHERE ns = $1 AND stream = $2 AND seq > coalesce($4, h.oldest_seq) ORDER BY seq LIMIT $5
) e ON true
ORDER BY e.seq
