INSERT INTO pollers (ns, queue, owner, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (ns, queue, owner) DO UPDATE SET at = excluded.at
