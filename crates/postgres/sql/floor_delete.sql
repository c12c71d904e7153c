DELETE FROM floors t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS kind OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind
