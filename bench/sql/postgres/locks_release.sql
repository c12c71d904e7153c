UPDATE locks t
SET owner = NULL, acquired_at = NULL, expires_at = NULL
FROM unnest($1::text[], $2::bigint[]) AS u(key, token) CROSS JOIN LATERAL (
    SELECT ctid FROM locks WHERE ns = 1 AND key = u.key AND token = u.token OFFSET 0
) found
WHERE t.ctid = found.ctid
