INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, started_at, finished_at, expires_at, timeout,
    cancel_requested, owner, token, lease_expires_at, heartbeat_at, lease_length, claim_key, thread, parent,
    root, child_key, idempotency_key, exclusive_key, depth, children, open_children, failed_by, last_seq,
    oldest_seq, oldest_at, request, depends_on, open_dependencies, labels, backoff, waiting_for, resumed_by,
    traceparent, error, metadata, progress, input, output, timer, lease_minute, ord
)
SELECT
    $1, u.id, u.queue, u.kind, u.status, u.turn, u.priority, u.run_at, u.rank, u.revision, u.attempt,
    u.failures, u.lease_losses, u.max_attempts, u.max_lease_losses, u.created_at, u.updated_at, u.started_at,
    u.finished_at, u.expires_at, u.timeout, u.cancel_requested, u.owner, u.token, u.lease_expires_at,
    u.heartbeat_at, u.lease_length, u.claim_key, u.thread, u.parent, u.root, u.child_key, u.idempotency_key,
    u.exclusive_key, u.depth, u.children, u.open_children, u.failed_by, u.last_seq, u.oldest_seq, u.oldest_at,
    u.request, u.depends_on::uuid[], u.open_dependencies::uuid[], u.labels, u.backoff, u.waiting_for,
    u.resumed_by, u.traceparent, u.error, u.metadata, u.progress, u.input, u.output, u.timer, u.lease_minute,
    ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM unnest(
    $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[], $8::timestamptz[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::timestamptz[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[], $20::timestamptz[],
    $21::bigint[], $22::boolean[], $23::text[], $24::bigint[], $25::timestamptz[], $26::timestamptz[],
    $27::bigint[], $28::text[], $29::text[], $30::uuid[], $31::uuid[], $32::text[], $33::text[], $34::text[],
    $35::bigint[], $36::bigint[], $37::bigint[], $38::uuid[], $39::bigint[], $40::bigint[], $41::timestamptz[],
    $42::bytea[], $43::text[], $44::text[], $45::jsonb[], $46::json[], $47::json[], $48::json[], $49::text[],
    $50::json[], $51::json[], $52::json[], $53::json[], $54::json[], $55::timestamptz[], $56::bigint[]
) AS u(
    id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, started_at, finished_at, expires_at, timeout,
    cancel_requested, owner, token, lease_expires_at, heartbeat_at, lease_length, claim_key, thread, parent,
    root, child_key, idempotency_key, exclusive_key, depth, children, open_children, failed_by, last_seq,
    oldest_seq, oldest_at, request, depends_on, open_dependencies, labels, backoff, waiting_for, resumed_by,
    traceparent, error, metadata, progress, input, output, timer, lease_minute
)
