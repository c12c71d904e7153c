SELECT
    t.actor, t.key, t.request, t.expires_at, t.replies
FROM answers t JOIN unnest($2::text[], $3::text[]) AS u(actor, key)
    ON t.ns = $1 AND t.actor = u.actor AND t.key = u.key
ORDER BY t.actor, t.key
