-- Events whose heads are as this process knows them: all who wrote to them before have ended, so that this transaction is the
-- highest of all that did. See event_insert.
INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
SELECT $1, u.stream, u.seq, u.category,
    lpad(to_hex(((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)), 16, '0')
        || lpad(to_hex(d.number << 24 | u.place), 16, '0'),
    u.at, u.type, u.actor, u.data
FROM (SELECT
    generate_series(1, cardinality($2::text[])) AS place, unnest($2::text[]) AS stream, unnest($3::bigint[]) AS seq,
    unnest($4::text[]) AS category, unnest($5::timestamptz[]) AS at, unnest($6::text[]) AS type,
    unnest($7::text[]) AS actor, unnest($8::json[]) AS data
) u
CROSS JOIN (SELECT nextval('event_numbers') AS number) d
