-- Events of a dump, with the positions that they had.
INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
SELECT $1, u.stream, u.seq, u.category, u.position, u.at, u.type, u.actor, u.data
FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[], $9::json[])
    AS u(stream, seq, category, position, at, type, actor, data)
