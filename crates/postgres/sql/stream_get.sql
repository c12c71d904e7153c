SELECT
    t.stream, t.last_seq, t.oldest_seq, t.oldest_at
FROM streams t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(stream) OFFSET 0) u
    ON t.ns = u.ns AND t.stream = u.stream
ORDER BY t.stream
