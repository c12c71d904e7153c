SELECT
    t.actor, t.key, t.request, t.expires_at, t.replies
FROM answers t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(actor, key) OFFSET 0) u
    ON t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
ORDER BY t.actor, t.key
