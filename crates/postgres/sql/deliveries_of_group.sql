SELECT
    t.name, t.source, t.position, t.stream, t.seq, t.consumer, t.delivery, t.token, t.out, t.visible_at,
    t.read_key
FROM deliveries t WHERE t.ns = $1 AND t.name = $2 AND t.source = $3 ORDER BY t.position LIMIT 100
