INSERT INTO entries (ns, key, set_at, expires_at, value, expires_minute)
VALUES (1, $1, now(), now() + interval '1 day', $2, $3)
ON CONFLICT (ns, key) DO UPDATE
SET set_at = excluded.set_at, expires_at = excluded.expires_at, value = excluded.value,
    expires_minute = excluded.expires_minute
