UPDATE tasks
SET status = 'running', turn = 'off', revision = revision + 1, attempt = attempt + 1, updated_at = ?2, started_at = ?2,
    owner = ?3, token = ?4, lease_expires_at = ?5, heartbeat_at = ?2, lease_length = 86400000000,
    last_seq = 2
WHERE rowid = ?1
