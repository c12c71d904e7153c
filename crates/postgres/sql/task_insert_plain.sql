-- New tasks to which nothing has happened yet, without family, dependencies and exclusive key.
INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, expires_at, timeout, cancel_requested, token, thread, root,
    idempotency_key, depth, children, open_children, last_seq, oldest_seq, oldest_at, request, depends_on,
    open_dependencies, labels, backoff, traceparent, metadata, input, timer, ord
)
SELECT
    $1, u.id, u.queue, u.kind, u.status, u.turn, u.priority, u.run_at, u.rank, 1, 0, 0, 0,
    u.max_attempts, u.max_lease_losses, u.created_at, u.created_at, u.expires_at, u.timeout, false, 0, u.thread, u.id,
    u.idempotency_key, 0, 0, 0, 1, 0, u.created_at, u.request, '{}',
    '{}', u.labels, u.backoff, u.traceparent, u.metadata, u.input, u.timer,
    ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM unnest(
    $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[], $8::timestamptz[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $16::text[],
    $17::bytea[], $18::jsonb[], $19::json[], $20::text[], $21::json[], $22::json[], $23::timestamptz[]
) AS u(
    id, queue, kind, status, turn, priority, run_at, rank, max_attempts, max_lease_losses, created_at, expires_at,
    timeout, thread, idempotency_key, request, labels, backoff, traceparent, metadata, input, timer
)
