SELECT
    t.queue, t.owner, t.at
FROM pollers t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(queue, owner) OFFSET 0) u
    ON t.ns = u.ns AND t.queue = u.queue AND t.owner = u.owner
ORDER BY t.queue, t.owner
