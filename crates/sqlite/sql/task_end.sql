-- The last step of a task, or one that leads back from it.
UPDATE tasks SET
    status = ?3, turn = ?4, run_at = ?5, revision = ?6, attempt = ?7, failures = ?8,
    lease_losses = ?9, updated_at = ?10, started_at = ?11, cancel_requested = ?12, timer = ?13,
    owner = ?14, token = ?15, lease_started_at = ?16, lease_expires_at = ?17, heartbeat_at = ?18,
    lease_length = ?19, claim_key = ?20, children = ?21, open_children = ?22, failed_by = ?23,
    last_seq = ?24, oldest_seq = ?25, oldest_at = ?26, open_dependencies = ?27, waiting_for = ?28,
    resumed_by = ?29, error = ?30, progress = ?31, output = ?32, finished_at = ?33
WHERE ns = ?1 AND id = ?2
