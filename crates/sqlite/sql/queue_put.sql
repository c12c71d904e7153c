INSERT INTO queues (ns, queue, paused) VALUES (?1, ?2, ?3)
ON CONFLICT (ns, queue) DO UPDATE SET paused = excluded.paused
