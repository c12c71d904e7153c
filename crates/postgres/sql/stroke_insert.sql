-- Notes that what is written with it is committed, and by which transaction.
INSERT INTO strokes (pen, stroke, ord)
SELECT $2::uuid, $3::bigint, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM (SELECT $1::bigint) u
