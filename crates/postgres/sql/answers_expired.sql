SELECT
    t.actor, t.key, t.request, t.expires_at, t.replies
FROM answers t WHERE t.ns = $1 AND t.expires_at <= $2
ORDER BY t.expires_at LIMIT $3
FOR UPDATE SKIP LOCKED
