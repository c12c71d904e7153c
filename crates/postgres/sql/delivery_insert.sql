INSERT INTO deliveries (
    ns, name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
)
SELECT
    $1, u.name, u.source, u.position, u.stream, u.seq, u.consumer, u.delivery, u.token, u.out, u.visible_at,
    u.read_key
FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[],
    $10::boolean[], $11::timestamptz[], $12::text[]
) AS u(
    name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
)
