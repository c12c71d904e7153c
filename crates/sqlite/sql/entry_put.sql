INSERT INTO entries (ns, key, set_at, expires_at, value, expires_minute) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (ns, key) DO UPDATE SET set_at = excluded.set_at, expires_at = excluded.expires_at, value = excluded.value,
    expires_minute = excluded.expires_minute
