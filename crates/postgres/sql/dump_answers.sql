SELECT
    t.actor, t.key, t.request, t.expires_at, t.replies
FROM answers t WHERE t.ns = $1 ORDER BY t.actor, t.key
