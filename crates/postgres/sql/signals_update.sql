UPDATE signals t SET
    kept = u.kept
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::uuid[], $3::json[]
) AS u(
    task, kept
) OFFSET 0) u
WHERE t.ns = u.ns AND t.task = u.task
