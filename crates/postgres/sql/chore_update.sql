UPDATE chores t SET
    after = u.after
FROM unnest(
    $2::text[], $3::uuid[]
) AS u(
    chore, after
)
WHERE t.ns = $1 AND t.chore = u.chore
