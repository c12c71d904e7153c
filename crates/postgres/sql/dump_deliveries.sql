SELECT
    t.name, t.source, t.position, t.stream, t.seq, t.consumer, t.delivery, t.token, t.out, t.visible_at,
    t.read_key
FROM deliveries t WHERE t.ns = $1 ORDER BY t.name, t.source, t.position
