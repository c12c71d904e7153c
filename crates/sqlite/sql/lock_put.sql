INSERT INTO locks (ns, key, token, owner, acquired_at, expires_at, forget_at, forget_hour)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (ns, key) DO UPDATE SET token = excluded.token, owner = excluded.owner, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, forget_at = excluded.forget_at, forget_hour = excluded.forget_hour
