-- Everything, for what amends and re-opens.
UPDATE tasks SET
    queue = ?3, kind = ?4, status = ?5, turn = ?6, priority = ?7, run_at = ?8, rank = ?9,
    revision = ?10, attempt = ?11, failures = ?12, lease_losses = ?13, max_attempts = ?14,
    max_lease_losses = ?15, created_at = ?16, updated_at = ?17, started_at = ?18, finished_at = ?19,
    expires_at = ?20, timeout = ?21, cancel_requested = ?22, timer = ?23, owner = ?24, token = ?25,
    lease_expires_at = ?26, heartbeat_at = ?27, lease_length = ?28, claim_key = ?29, thread = ?30,
    parent = ?31, root = ?32, child_key = ?33, idempotency_key = ?34, exclusive_key = ?35,
    depth = ?36, children = ?37, open_children = ?38, failed_by = ?39, last_seq = ?40,
    oldest_seq = ?41, oldest_at = ?42, request = ?43, depends_on = ?44, open_dependencies = ?45,
    labels = ?46, backoff = ?47, waiting_for = ?48, resumed_by = ?49, traceparent = ?50,
    error = ?51, metadata = ?52, progress = ?53, input = ?54, output = ?55
WHERE ns = ?1 AND id = ?2
