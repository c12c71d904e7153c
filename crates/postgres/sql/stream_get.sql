SELECT
    t.stream, t.last_seq, t.oldest_seq, t.oldest_at
FROM streams t JOIN unnest($2::text[]) AS u(stream)
    ON t.ns = $1 AND t.stream = u.stream
ORDER BY t.stream
