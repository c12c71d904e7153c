UPDATE streams t SET
    last_seq = u.last_seq, oldest_seq = u.oldest_seq, oldest_at = u.oldest_at,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS stream, unnest($3::bigint[]) AS last_seq, unnest($4::bigint[]) AS oldest_seq,
    unnest($5::timestamptz[]) AS oldest_at
OFFSET 0) u
WHERE t.ns = u.ns AND t.stream = u.stream
