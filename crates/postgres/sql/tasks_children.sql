-- The children of a task. `q` are the questions: of which task, after which one, how many.
SELECT q.n, {task}
FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) WITH ORDINALITY AS q(parent, after, most, n) CROSS JOIN LATERAL (
    SELECT t.ns, t.id FROM tasks t
    WHERE t.ns = $1 AND t.parent = q.parent AND (q.after IS NULL OR t.id > q.after)
    ORDER BY t.id LIMIT q.most
) f JOIN tasks t ON t.ns = f.ns AND t.id = f.id
