INSERT INTO locks (ns, key, token, owner, acquired_at, expires_at, forget_at, forget_hour)
SELECT 1, u.key, $3, u.owner, now(), now() + interval '1 day', now() + interval '1 day', $4
FROM unnest($1::text[], $2::text[]) AS u(key, owner)
ON CONFLICT (ns, key) DO UPDATE
SET token = excluded.token, owner = excluded.owner, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, forget_at = excluded.forget_at, forget_hour = excluded.forget_hour
WHERE locks.owner IS NULL OR locks.expires_at <= excluded.acquired_at
