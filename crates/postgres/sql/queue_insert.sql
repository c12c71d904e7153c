INSERT INTO queues (
    ns, queue, paused
)
SELECT
    $1, u.queue, u.paused
FROM unnest(
    $2::text[], $3::boolean[]
) AS u(
    queue, paused
)
