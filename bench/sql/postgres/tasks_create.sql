WITH event AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT 1, 'task/' || id, 1, 'task', '00000000000000010000000000000001', now(), 'task.created', '{"status":"pending"}'
    FROM unnest($1::uuid[]) AS u(id)
)
INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, cancel_requested, token, root, depth, children,
    open_children, last_seq, oldest_seq, oldest_at, request, depends_on, open_dependencies, labels, backoff, input, ord
)
SELECT
    1, u.id, u.queue, 'answer', 'pending', 'ready', 0, now(), 0, 1, 0, 0, 0,
    3, 10, now(), now(), false, 0, u.id, 0, 0,
    0, 1, 0, now(), $4, '{}', '{}', '{}', '{"initial_seconds":1,"factor":2,"max_seconds":100}', u.input, 1
FROM unnest($1::uuid[], $2::text[], $3::json[]) AS u(id, queue, input)
