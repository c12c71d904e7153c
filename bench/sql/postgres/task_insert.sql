INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, cancel_requested, token, root, depth, children,
    open_children, last_seq, oldest_seq, oldest_at, request, depends_on, open_dependencies, labels, backoff, input, ord
)
VALUES (
    1, $1, $2, 'answer', 'pending', 'ready', 0, now(), 0, 1, 0, 0, 0,
    3, 10, now(), now(), false, 0, $1, 0, 0,
    0, 1, 0, now(), $4, '{}', '{}', '{}', '{"initial_seconds":1,"factor":2,"max_seconds":100}', $3, 1
)
