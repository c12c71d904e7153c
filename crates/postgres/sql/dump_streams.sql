SELECT
    t.stream, t.last_seq, t.oldest_seq, t.oldest_at
FROM streams t WHERE t.ns = $1 ORDER BY t.stream
