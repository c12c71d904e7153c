SELECT
    t.chore, t.after
FROM chores t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(chore) OFFSET 0) u
    ON t.ns = u.ns AND t.chore = u.chore
ORDER BY t.chore
