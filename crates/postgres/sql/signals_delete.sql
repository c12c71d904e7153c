DELETE FROM signals t USING (SELECT $1::bigint AS ns, unnest($2::uuid[]) AS task OFFSET 0) u
WHERE t.ns = u.ns AND t.task = u.task
