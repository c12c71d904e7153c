-- A new task that can be claimed and has no more than an input: the fewer values are given, the less it costs.
INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, cancel_requested, token, depth, children,
    open_children, last_seq, oldest_seq, oldest_at, request, input
) VALUES (
    ?1, ?2, ?3, ?4, 'pending', 'ready', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, ?16, 0, 0, 0, ?17, ?18,
    ?19, ?20, ?21
)
