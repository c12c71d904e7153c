UPDATE tasks t SET
    queue = u.queue, kind = u.kind, status = u.status, turn = u.turn, priority = u.priority, run_at = u.run_at,
    rank = u.rank, revision = u.revision, attempt = u.attempt, failures = u.failures,
    lease_losses = u.lease_losses, max_attempts = u.max_attempts, max_lease_losses = u.max_lease_losses,
    created_at = u.created_at, updated_at = u.updated_at, started_at = u.started_at,
    finished_at = u.finished_at, expires_at = u.expires_at, timeout = u.timeout,
    cancel_requested = u.cancel_requested, owner = u.owner, token = u.token,
    lease_expires_at = u.lease_expires_at, heartbeat_at = u.heartbeat_at, lease_length = u.lease_length,
    claim_key = u.claim_key, thread = u.thread, parent = u.parent, root = u.root, child_key = u.child_key,
    idempotency_key = u.idempotency_key, exclusive_key = u.exclusive_key, depth = u.depth,
    children = u.children, open_children = u.open_children, failed_by = u.failed_by, last_seq = u.last_seq,
    oldest_seq = u.oldest_seq, oldest_at = u.oldest_at, request = u.request, depends_on = u.depends_on::uuid[],
    open_dependencies = u.open_dependencies::uuid[], labels = u.labels, backoff = u.backoff,
    waiting_for = u.waiting_for, resumed_by = u.resumed_by, traceparent = u.traceparent, error = u.error,
    metadata = u.metadata, progress = u.progress, input = u.input, output = u.output, timer = u.timer,
    lease_minute = u.lease_minute,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns, * FROM unnest(
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
) OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
