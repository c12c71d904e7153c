UPDATE signals t SET
    kept = u.kept
FROM (SELECT $1::bigint AS ns, unnest($2::uuid[]) AS task, unnest($3::json[]) AS kept OFFSET 0) u
WHERE t.ns = u.ns AND t.task = u.task
