UPDATE deliveries t SET
    stream = u.stream, seq = u.seq, consumer = u.consumer, delivery = u.delivery, token = u.token, out = u.out,
    visible_at = u.visible_at, read_key = u.read_key
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[],
    $10::boolean[], $11::timestamptz[], $12::text[]
) AS u(
    name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
) OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source AND t.position = u.position
