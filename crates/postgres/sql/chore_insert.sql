INSERT INTO chores (
    ns, chore, after
)
SELECT
    $1, u.chore, u.after
FROM unnest(
    $2::text[], $3::uuid[]
) AS u(
    chore, after
)
