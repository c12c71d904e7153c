INSERT INTO locks (ns, key, token, owner, acquired_at, expires_at, forget_at)
VALUES (1, ?1, ?2, ?3, ?2, ?4, ?4)
ON CONFLICT (ns, key) DO UPDATE
SET token = excluded.token, owner = excluded.owner, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, forget_at = excluded.forget_at
WHERE owner IS NULL OR expires_at <= excluded.acquired_at
