INSERT INTO entries (ns, key, set_at, expires_at, value)
VALUES (1, ?1, ?2, ?3, ?4)
ON CONFLICT (ns, key) DO UPDATE SET set_at = excluded.set_at, expires_at = excluded.expires_at, value = excluded.value
