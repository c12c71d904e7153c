SELECT
    t.chore, t.after
FROM chores t WHERE t.ns = $1
ORDER BY t.chore
FOR UPDATE SKIP LOCKED
