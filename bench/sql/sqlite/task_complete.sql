UPDATE tasks
SET status = 'completed', revision = revision + 1, updated_at = ?3, finished_at = ?3, owner = NULL,
    lease_expires_at = NULL, heartbeat_at = NULL, lease_length = NULL, output = ?4, last_seq = 3
WHERE ns = 1 AND id = ?1 AND token = ?2 AND status = 'running'
