SELECT
    t.key, t.token, CASE WHEN NOT session_over(t.session, t.session_token, t.token) THEN t.owner END,
    t.acquired_at, t.expires_at, CASE WHEN t.session_token = t.token THEN t.session END, t.forget_at, t.forget_hour
FROM locks t JOIN (SELECT $1::bigint AS ns, * FROM unnest((SELECT $2::text[])) AS u(key) OFFSET 0) u
    ON t.ns = u.ns AND t.key = u.key
ORDER BY t.key
