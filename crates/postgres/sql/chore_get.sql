SELECT
    t.chore, t.after
FROM chores t JOIN unnest($2::text[]) AS u(chore)
    ON t.ns = $1 AND t.chore = u.chore
ORDER BY t.chore
