SELECT
    t.task, t.kept
FROM signals t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::uuid[]) AS u(task) OFFSET 0) u
    ON t.ns = u.ns AND t.task = u.task
ORDER BY t.task
