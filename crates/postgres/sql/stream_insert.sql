INSERT INTO streams (
    ns, stream, last_seq, oldest_seq, oldest_at, ord
)
SELECT
    $1, u.stream, u.last_seq, u.oldest_seq, u.oldest_at,
    ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM unnest(
    $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[]
) AS u(
    stream, last_seq, oldest_seq, oldest_at
)
