-- What an owner still has of a claim with a key. `q` are the questions: whose, which key, how many.
SELECT q.n, {task}
FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS q(owner, key, most, n) CROSS JOIN LATERAL (
    SELECT t.ns, t.id FROM tasks t WHERE t.ns = $1 AND t.owner = q.owner AND t.claim_key = q.key
    ORDER BY t.priority, t.run_at, t.id LIMIT q.most
) f JOIN tasks t ON t.ns = f.ns AND t.id = f.id
