INSERT INTO entries (ns, key, set_at, expires_at, value, expires_minute)
SELECT 1, u.key, now(), now() + interval '1 day', u.value, $3
FROM unnest($1::text[], $2::json[]) AS u(key, value)
ON CONFLICT (ns, key) DO UPDATE
SET set_at = excluded.set_at, expires_at = excluded.expires_at, value = excluded.value,
    expires_minute = excluded.expires_minute
