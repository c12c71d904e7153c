UPDATE queues t SET
    paused = u.paused
FROM (SELECT $1::bigint AS ns, unnest($2::text[]) AS queue, unnest($3::boolean[]) AS paused OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue
