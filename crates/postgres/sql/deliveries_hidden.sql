-- Deliveries of a group that are not visible yet.
SELECT
    t.name, t.source, t.position, t.stream, t.seq, t.consumer, t.delivery, t.token, t.out, t.visible_at,
    t.read_key
FROM deliveries t
WHERE t.ns = $1 AND t.name = $2 AND t.source = $3 AND t.visible_at > $4
ORDER BY t.visible_at, t.position LIMIT $5
