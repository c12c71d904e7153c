INSERT INTO signals (ns, task, kept) VALUES (?1, ?2, ?3)
ON CONFLICT (ns, task) DO UPDATE SET kept = excluded.kept
