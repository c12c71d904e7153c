INSERT INTO tasks (ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures,
                   lease_losses, max_attempts, max_lease_losses, created_at, updated_at, cancel_requested, token,
                   depth, children, open_children, last_seq, oldest_seq, oldest_at, request, input)
VALUES (1, ?1, ?2, 'answer', 'pending', 'ready', 0, ?3, 0, 1, 0, 0,
        0, 3, 10, ?3, ?3, 0, 0,
        0, 0, 0, 1, 0, ?3, ?4, ?5)
