UPDATE locks t
SET owner = NULL, acquired_at = NULL, expires_at = NULL
FROM unnest($1::text[], $2::bigint[]) AS u(key, token)
WHERE t.ns = 1 AND t.key = u.key AND t.token = u.token
