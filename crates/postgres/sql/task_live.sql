-- What changes in the life of a task; what it was made with stays.
UPDATE tasks t SET
    status = u.status, turn = u.turn, run_at = u.run_at, revision = u.revision, attempt = u.attempt,
    failures = u.failures, lease_losses = u.lease_losses, updated_at = u.updated_at, started_at = u.started_at,
    finished_at = u.finished_at, cancel_requested = u.cancel_requested, owner = u.owner, token = u.token,
    lease_expires_at = u.lease_expires_at, heartbeat_at = u.heartbeat_at, lease_length = u.lease_length,
    claim_key = u.claim_key, children = u.children, open_children = u.open_children, last_seq = u.last_seq,
    oldest_seq = u.oldest_seq, oldest_at = u.oldest_at, waiting_for = u.waiting_for,
    resumed_by = u.resumed_by, error = u.error, progress = u.progress, output = u.output, timer = u.timer,
    lease_minute = u.lease_minute,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::boolean[], $14::text[],
    $15::bigint[], $16::timestamptz[], $17::timestamptz[], $18::bigint[], $19::text[], $20::bigint[],
    $21::bigint[], $22::bigint[], $23::bigint[], $24::timestamptz[], $25::json[], $26::json[], $27::json[],
    $28::json[], $29::json[], $30::timestamptz[], $31::bigint[]
) AS u(
    id, status, turn, run_at, revision, attempt, failures, lease_losses, updated_at, started_at, finished_at,
    cancel_requested, owner, token, lease_expires_at, heartbeat_at, lease_length, claim_key, children,
    open_children, last_seq, oldest_seq, oldest_at, waiting_for, resumed_by, error, progress, output, timer,
    lease_minute
) OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
