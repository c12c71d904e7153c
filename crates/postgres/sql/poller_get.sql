SELECT
    t.queue, t.owner, t.at
FROM pollers t JOIN unnest($2::text[], $3::text[]) AS u(queue, owner)
    ON t.ns = $1 AND t.queue = u.queue AND t.owner = u.owner
ORDER BY t.queue, t.owner
