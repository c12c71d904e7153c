UPDATE queues t SET
    paused = u.paused
FROM unnest(
    $2::text[], $3::boolean[]
) AS u(
    queue, paused
)
WHERE t.ns = $1 AND t.queue = u.queue
