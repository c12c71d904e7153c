-- Everything, for what amends, retries and re-opens.
UPDATE tasks SET
    queue = ?3, kind = ?4, status = ?5, turn = ?6, priority = ?7, run_at = ?8, rank = ?9,
    revision = ?10, attempt = ?11, failures = ?12, lease_losses = ?13, max_attempts = ?14,
    max_lease_losses = ?15, created_at = ?16, updated_at = ?17, started_at = ?18, finished_at = ?19,
    expires_at = ?20, timeout = ?21, cancel_requested = ?22, timer = ?23, owner = ?24, token = ?25,
    lease_started_at = ?26, lease_expires_at = ?27, heartbeat_at = ?28, lease_length = ?29,
    claim_key = ?30, thread = ?31, parent = ?32, root = ?33, child_key = ?34, idempotency_key = ?35,
    exclusive_key = ?36, depth = ?37, children = ?38, open_children = ?39, failed_by = ?40,
    last_seq = ?41, oldest_seq = ?42, oldest_at = ?43, request = ?44, depends_on = ?45,
    open_dependencies = ?46, labels = ?47, backoff = ?48, waiting_for = ?49, resumed_by = ?50,
    traceparent = ?51, error = ?52, metadata = ?53, progress = ?54, input = ?55, output = ?56
WHERE ns = ?1 AND id = ?2
