SELECT t.stream, t.seq, t.position, t.at, t.type, t.actor, t.data FROM events t JOIN unnest($2::text[], $3::bigint[]) AS u(stream, seq)
    ON t.ns = $1 AND t.stream = u.stream AND t.seq = u.seq
