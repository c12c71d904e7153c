-- The places of new tasks in the order of creation.
INSERT INTO task_ages (ns, created_at, id)
SELECT $1, u.created_at, u.id
FROM (SELECT unnest($2::timestamptz[]) AS created_at, unnest($3::uuid[]) AS id) u
