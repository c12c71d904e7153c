-- Everything, for what amends and re-opens.
UPDATE tasks SET
    queue = ?3, kind = ?4, status = ?5, turn = ?6, priority = ?7, run_at = ?8, rank = ?9,
    revision = ?10, attempt = ?11, failures = ?12, lease_losses = ?13, max_attempts = ?14,
    max_lease_losses = ?15, created_at = ?16, updated_at = ?17, started_at = ?18, finished_at = ?19,
    expires_at = ?20, timeout = ?21, cancel_requested = ?22, owner = ?23, token = ?24,
    lease_expires_at = ?25, heartbeat_at = ?26, lease_length = ?27, claim_key = ?28, thread = ?29,
    parent = ?30, root = ?31, child_key = ?32, idempotency_key = ?33, exclusive_key = ?34,
    depth = ?35, children = ?36, open_children = ?37, failed_by = ?38, last_seq = ?39,
    oldest_seq = ?40, oldest_at = ?41, request = ?42, depends_on = ?43, open_dependencies = ?44,
    labels = ?45, backoff = ?46, waiting_for = ?47, resumed_by = ?48, traceparent = ?49,
    error = ?50, metadata = ?51, progress = ?52, input = ?53, output = ?54
WHERE ns = ?1 AND id = ?2
