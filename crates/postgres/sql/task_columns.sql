-- What `{task}` stands for in the other statements.
    t.id, t.queue, t.kind, t.status, t.turn, t.priority, t.run_at, t.rank, t.revision, t.attempt, t.failures,
    t.lease_losses, t.max_attempts, t.max_lease_losses, t.created_at, t.updated_at, t.started_at, t.finished_at,
    t.expires_at, t.timeout, t.cancel_requested, t.owner, t.token, t.lease_expires_at, t.heartbeat_at,
    t.lease_length, t.claim_key, t.thread, t.parent, t.root, t.child_key, t.idempotency_key, t.exclusive_key,
    t.depth, t.children, t.open_children, t.failed_by, t.last_seq, t.oldest_seq, t.oldest_at, t.request,
    t.depends_on, t.open_dependencies, t.labels, t.backoff, t.waiting_for, t.resumed_by, t.traceparent, t.error,
    t.metadata, t.progress, t.input, t.output, t.timer, t.lease_minute
