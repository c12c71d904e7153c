INSERT INTO pollers (
    ns, queue, owner, at
)
SELECT
    $1, u.queue, u.owner, u.at
FROM unnest(
    $2::text[], $3::text[], $4::timestamptz[]
) AS u(
    queue, owner, at
)
