INSERT INTO signals (
    ns, task, kept
)
SELECT
    $1, u.task, u.kept
FROM unnest(
    $2::uuid[], $3::json[]
) AS u(
    task, kept
)
