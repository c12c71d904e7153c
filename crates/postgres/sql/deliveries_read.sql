-- Deliveries that are out from a read with a key.
SELECT
    t.name, t.source, t.position, t.stream, t.seq, t.consumer, t.delivery, t.token, t.out, t.visible_at,
    t.read_key
FROM deliveries t
WHERE t.ns = $1 AND t.name = $2 AND t.source = $3 AND t.visible_at > $4 AND t.out AND t.consumer = $6 AND t.read_key = $7
ORDER BY t.visible_at, t.position LIMIT $5
