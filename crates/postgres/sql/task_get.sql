SELECT {task}
FROM tasks t JOIN (SELECT $1::bigint AS ns, * FROM unnest((SELECT $2::uuid[])) AS u(id) OFFSET 0) u
    ON t.ns = u.ns AND t.id = u.id
ORDER BY t.id
