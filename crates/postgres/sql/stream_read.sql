-- The head of a stream, which is the row without a position, and its events after a number, or from the oldest.
WITH head AS MATERIALIZED (
    SELECT coalesce(s.last_seq, k.last_seq, 0) AS last_seq, coalesce(s.oldest_seq, k.oldest_seq, 0) AS oldest_seq
    FROM (VALUES (1)) AS one(n)
    LEFT JOIN streams s ON s.ns = $1 AND s.stream = $2
    LEFT JOIN tasks k ON k.ns = $1 AND k.id = $3
)
SELECT last_seq AS seq, oldest_seq, NULL AS position, NULL::timestamptz AS at, NULL AS type, NULL AS actor, NULL::json AS data
FROM head
UNION ALL (
    SELECT seq, NULL, position, at, type, actor, data FROM events
    WHERE ns = $1 AND stream = $2 AND seq > coalesce($4, (SELECT oldest_seq FROM head)) ORDER BY seq LIMIT $5
)
