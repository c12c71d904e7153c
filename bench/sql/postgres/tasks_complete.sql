WITH completed AS (
    UPDATE tasks t
    SET status = 'completed', revision = revision + 1, updated_at = now(), finished_at = now(), owner = NULL,
        lease_expires_at = NULL, heartbeat_at = NULL, lease_length = NULL, lease_minute = NULL, output = u.output,
        last_seq = 3
    FROM unnest($1::uuid[], $2::bigint[], $3::json[]) AS u(id, token, output) CROSS JOIN LATERAL (
        SELECT ctid FROM tasks WHERE ns = 1 AND id = u.id AND token = u.token AND status = 'running' OFFSET 0
    ) found
    WHERE t.ctid = found.ctid
    RETURNING t.id
)
INSERT INTO events (ns, stream, seq, category, position, at, type, data)
SELECT 1, 'task/' || id, 3, 'task', '00000000000000010000000000000001', now(), 'task.completed', '{"attempt":1}'
FROM completed
