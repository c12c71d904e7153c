SELECT value, set_at, expires_at
FROM entries
WHERE ns = 1 AND key = $1 AND expires_at > now()
