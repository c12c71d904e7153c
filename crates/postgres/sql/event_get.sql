SELECT t.stream, t.seq, t.position, t.at, t.type, t.actor, t.data FROM events t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::bigint[]) AS u(stream, seq) OFFSET 0) u
    ON t.ns = u.ns AND t.stream = u.stream AND t.seq = u.seq
