DELETE FROM exclusives t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS key OFFSET 0) u
WHERE t.ns = u.ns AND t.key = u.key
