UPDATE tasks
SET status = 'completed', revision = revision + 1, updated_at = now(), finished_at = now(), owner = NULL,
    lease_expires_at = NULL, heartbeat_at = NULL, lease_length = NULL, lease_minute = NULL, output = $3, last_seq = 3
WHERE ns = 1 AND id = $1 AND token = $2 AND status = 'running'
