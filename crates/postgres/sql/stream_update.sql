UPDATE streams t SET
    last_seq = u.last_seq, oldest_seq = u.oldest_seq, oldest_at = u.oldest_at,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[]
) AS u(
    stream, last_seq, oldest_seq, oldest_at
) OFFSET 0) u
WHERE t.ns = u.ns AND t.stream = u.stream
