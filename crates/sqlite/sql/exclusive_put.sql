INSERT INTO exclusives (ns, key, open, holder, nominee) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ns, key) DO UPDATE SET open = excluded.open, holder = excluded.holder, nominee = excluded.nominee
