SELECT * FROM tasks INDEXED BY tasks_parked WHERE ns = ?1 AND status IN ('backlog', 'blocked', 'waiting')
