SELECT
    t.key, t.token, t.owner, t.acquired_at, t.expires_at, t.forget_at, t.forget_hour
FROM locks t JOIN unnest($2::text[]) AS u(key)
    ON t.ns = $1 AND t.key = u.key
ORDER BY t.key
