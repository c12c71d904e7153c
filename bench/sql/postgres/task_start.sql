UPDATE tasks
SET status = 'running', turn = 'off', revision = revision + 1, attempt = attempt + 1, updated_at = now(),
    started_at = now(), owner = $2, token = $3, lease_expires_at = now() + interval '1 day', heartbeat_at = now(),
    lease_length = 86400000000, last_seq = 2, lease_minute = $4
WHERE ns = 1 AND id = $1
