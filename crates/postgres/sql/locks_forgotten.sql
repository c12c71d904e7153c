SELECT
    t.key, t.token, CASE WHEN NOT session_over(t.session, t.session_token, t.token) THEN t.owner END,
    t.acquired_at, t.expires_at, CASE WHEN t.session_token = t.token THEN t.session END, t.forget_at, t.forget_hour
FROM locks t WHERE t.ns = $1 AND t.forget_hour <= $4 AND t.forget_at <= $2
ORDER BY t.forget_hour LIMIT $3
FOR UPDATE SKIP LOCKED
