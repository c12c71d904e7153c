DELETE FROM chores t USING unnest($2::text[]) AS u(chore)
WHERE t.ns = $1 AND t.chore = u.chore
