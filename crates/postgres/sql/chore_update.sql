UPDATE chores t SET
    after = u.after
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::uuid[]
) AS u(
    chore, after
) OFFSET 0) u
WHERE t.ns = u.ns AND t.chore = u.chore
