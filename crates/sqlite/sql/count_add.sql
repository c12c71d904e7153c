INSERT INTO counts (ns, queue, status, tasks) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (ns, queue, status) DO UPDATE SET tasks = tasks + excluded.tasks
