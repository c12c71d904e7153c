INSERT INTO dependencies (ns, dependency, task)
SELECT $1, u.dependency, u.task FROM unnest($2::uuid[], $3::uuid[]) AS u(dependency, task)
ON CONFLICT DO NOTHING
