UPDATE locks
SET owner = NULL, acquired_at = NULL, expires_at = NULL
WHERE ns = 1 AND key = $1 AND token = $2
