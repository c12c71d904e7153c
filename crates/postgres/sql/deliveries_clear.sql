DELETE FROM deliveries t USING (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(name, source) OFFSET 0) u
WHERE t.ns = u.ns AND t.name = u.name AND t.source = u.source
