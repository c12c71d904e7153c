DELETE FROM streams t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS stream OFFSET 0) u
WHERE t.ns = u.ns AND t.stream = u.stream
