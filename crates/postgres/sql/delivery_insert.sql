INSERT INTO deliveries (
    ns, name, source, position, stream, seq, consumer, delivery, token, out, visible_at, read_key
)
SELECT
    $1, u.name, u.source, u.position, u.stream, u.seq, u.consumer, u.delivery, u.token, u.out, u.visible_at,
    u.read_key
FROM (SELECT
    unnest($2::text[]) AS name, unnest($3::text[]) AS source, unnest($4::text[]) AS position,
    unnest($5::text[]) AS stream, unnest($6::bigint[]) AS seq, unnest($7::text[]) AS consumer,
    unnest($8::bigint[]) AS delivery, unnest($9::bigint[]) AS token, unnest($10::boolean[]) AS out,
    unnest($11::timestamptz[]) AS visible_at, unnest($12::text[]) AS read_key
) u
