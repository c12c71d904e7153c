INSERT INTO groups (ns, name, source, cursor, trims_seen, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (ns, name, source) DO UPDATE SET cursor = excluded.cursor, trims_seen = excluded.trims_seen, token = excluded.token
