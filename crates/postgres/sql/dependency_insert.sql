INSERT INTO dependencies (ns, dependency, task)
SELECT $1, u.dependency, u.task FROM (SELECT unnest($2::uuid[]) AS dependency, unnest($3::uuid[]) AS task) u
