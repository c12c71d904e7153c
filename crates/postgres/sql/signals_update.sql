UPDATE signals t SET
    kept = u.kept
FROM unnest(
    $2::uuid[], $3::json[]
) AS u(
    task, kept
)
WHERE t.ns = $1 AND t.task = u.task
