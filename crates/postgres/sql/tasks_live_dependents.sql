-- Tasks that named a task as a dependency and have not ended. `q` are the questions: of which task, after which one, how many.
SELECT q.n, {task}
FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) WITH ORDINALITY AS q(dependency, after, most, n) CROSS JOIN LATERAL (
    SELECT t.ns, t.id FROM dependencies d JOIN tasks t ON t.ns = d.ns AND t.id = d.task
    WHERE d.ns = $1 AND d.dependency = q.dependency AND (q.after IS NULL OR d.task > q.after) AND 
        t.status NOT IN ('completed', 'failed', 'cancelled')
    ORDER BY d.task LIMIT q.most
) f JOIN tasks t ON t.ns = f.ns AND t.id = f.id
