INSERT INTO streams (
    ns, stream, last_seq, oldest_seq, oldest_at, ord
)
SELECT
    $1, u.stream, u.last_seq, u.oldest_seq, u.oldest_at,
    ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM (SELECT
    unnest($2::text[]) AS stream, unnest($3::bigint[]) AS last_seq, unnest($4::bigint[]) AS oldest_seq,
    unnest($5::timestamptz[]) AS oldest_at
) u
