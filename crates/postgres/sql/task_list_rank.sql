-- Tasks that pass the filters that are given, by rank.
SELECT
    t.id, t.queue, t.kind, t.status, t.turn, t.priority, t.run_at, t.rank, t.revision, t.attempt, t.failures,
    t.lease_losses, t.max_attempts, t.max_lease_losses, t.created_at, t.updated_at, t.started_at, t.finished_at,
    t.expires_at, t.timeout, t.cancel_requested, t.owner, t.token, t.lease_expires_at, t.heartbeat_at,
    t.lease_length, t.claim_key, t.thread, t.parent, t.root, t.child_key, t.idempotency_key, t.exclusive_key,
    t.depth, t.children, t.open_children, t.failed_by, t.last_seq, t.oldest_seq, t.oldest_at, t.request,
    t.depends_on, t.open_dependencies, t.labels, t.backoff, t.waiting_for, t.resumed_by, t.traceparent, t.error,
    t.metadata, t.progress, t.input, t.output, t.timer, t.lease_minute
FROM tasks t
WHERE t.ns = $1
    AND ($2::text[] IS NULL OR t.status = ANY ($2))
    AND ($3::text IS NULL OR t.queue = $3)
    AND ($4::text IS NULL OR t.kind = $4)
    AND ($5::text IS NULL OR t.thread = $5)
    AND ($6::uuid IS NULL OR t.parent = $6)
    AND ($7::uuid IS NULL OR t.root = $7)
    AND ($8::text IS NULL OR t.owner = $8)
    AND ($9::text IS NULL OR t.idempotency_key = $9)
    AND ($10::text IS NULL OR t.exclusive_key = $10)
    AND ($11::jsonb IS NULL OR t.labels @> $11)
    AND ($12::timestamptz IS NULL OR t.created_at >= $12)
    AND ($13::timestamptz IS NULL OR t.created_at < $13)
    AND ($14::timestamptz IS NULL OR (t.owner IS NOT NULL AND t.heartbeat_at >= $14))
    AND ($15::timestamptz IS NULL OR (t.owner IS NOT NULL AND t.heartbeat_at < $15))
    AND ($17::bigint IS NULL OR (t.rank, t.id) > ($17, $18::uuid))
ORDER BY t.rank, t.id LIMIT $16
