DELETE FROM pollers t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS queue, unnest($3::text[]) AS owner OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue AND t.owner = u.owner
