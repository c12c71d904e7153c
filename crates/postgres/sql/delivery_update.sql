UPDATE deliveries t SET
    stream = u.stream, seq = u.seq, consumer = u.consumer, delivery = u.delivery, token = u.token, out = u.out,
    visible_at = u.visible_at, read_key = u.read_key
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS name, unnest($3::text[]) AS source, unnest($4::text[]) AS position,
    unnest($5::text[]) AS stream, unnest($6::bigint[]) AS seq, unnest($7::text[]) AS consumer,
    unnest($8::bigint[]) AS delivery, unnest($9::bigint[]) AS token, unnest($10::boolean[]) AS out,
    unnest($11::timestamptz[]) AS visible_at, unnest($12::text[]) AS read_key
OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source AND t.position = u.position
