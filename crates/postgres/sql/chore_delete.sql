DELETE FROM chores t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS chore OFFSET 0) u
WHERE t.ns = u.ns AND t.chore = u.chore
