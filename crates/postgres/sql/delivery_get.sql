SELECT
    t.name, t.source, t.position, t.stream, t.seq, t.consumer, t.delivery, t.token, t.out, t.visible_at,
    t.read_key
FROM deliveries t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[], $4::text[]) AS u(name, source, position) OFFSET 0) u
    ON t.ns = u.ns AND t.name = u.name AND t.source = u.source AND t.position = u.position
ORDER BY t.name, t.source, t.position
