DELETE FROM answers t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS actor, unnest($3::text[]) AS key OFFSET 0) u
WHERE t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
