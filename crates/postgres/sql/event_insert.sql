-- The order of a category: the highest transaction that wrote to the stream, which is this one or one that its head had
-- before, then a number drawn while the head is locked. The first event of a stream comes with its head.
INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
SELECT $1, u.stream, u.seq, u.category,
    lpad(to_hex(greatest(
        ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint),
        CASE
            WHEN u.seq = 1 THEN 0
            WHEN u.task IS NULL THEN (SELECT s.ord FROM streams s WHERE s.ns = $1 AND s.stream = u.stream)
            ELSE (SELECT t.ord FROM tasks t WHERE t.ns = $1 AND t.id = u.task)
        END
    )), 16, '0') || lpad(to_hex(d.number << 24 | u.place), 16, '0'),
    u.at, u.type, u.actor, u.data
FROM (SELECT
    generate_series(1, cardinality($2::text[])) AS place, unnest($2::text[]) AS stream, unnest($3::bigint[]) AS seq,
    unnest($4::text[]) AS category, unnest($5::uuid[]) AS task, unnest($6::timestamptz[]) AS at,
    unnest($7::text[]) AS type, unnest($8::text[]) AS actor, unnest($9::json[]) AS data
) u
CROSS JOIN (SELECT nextval('event_numbers') AS number) d
