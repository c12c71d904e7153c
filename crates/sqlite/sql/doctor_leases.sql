-- Tasks that run without an owner, or have one although they do not run.
SELECT format('task %s is %s, and its owner is %s', id, status, coalesce(owner, 'nobody'))
FROM tasks WHERE (status = 'running') <> (owner IS NOT NULL) LIMIT 20
