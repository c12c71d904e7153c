UPDATE chores t SET
    after = u.after
FROM (SELECT $1::bigint AS ns, unnest($2::text[]) AS chore, unnest($3::uuid[]) AS after OFFSET 0) u
WHERE t.ns = u.ns AND t.chore = u.chore
