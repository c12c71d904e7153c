INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures,
    lease_losses, max_attempts, max_lease_losses, created_at, updated_at, started_at, finished_at,
    expires_at, timeout, cancel_requested, owner, token, lease_expires_at, heartbeat_at,
    lease_length, claim_key, thread, parent, root, child_key, idempotency_key, exclusive_key, depth,
    children, open_children, failed_by, last_seq, oldest_seq, oldest_at, request, depends_on,
    open_dependencies, labels, backoff, waiting_for, resumed_by, traceparent, error, metadata,
    progress, input, output
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
    ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40,
    ?41, ?42, ?43, ?44, ?45, ?46, ?47, ?48, ?49, ?50, ?51, ?52, ?53, ?54
)
