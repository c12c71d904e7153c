UPDATE queues t SET
    paused = u.paused
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::boolean[]
) AS u(
    queue, paused
) OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue
