-- Events whose heads are as this process knows them: all who wrote to them before have ended, so that this transaction is the
-- highest of all that did, and it writes by one statement. See event_insert. `$9` are six digits each, the places within it.
INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
SELECT $1, u.stream, u.seq, u.category,
    (SELECT lpad(to_hex(((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)), 16, '0')
        || '0000000000') || u.place,
    u.at, u.type, u.actor, u.data
FROM (SELECT
    unnest($2::text[]) AS stream, unnest($3::bigint[]) AS seq, unnest($4::text[]) AS category,
    unnest($5::timestamptz[]) AS at, unnest($6::text[]) AS type, unnest($7::text[]) AS actor, unnest($8::json[]) AS data,
    unnest($9::text[]) AS place
) u
