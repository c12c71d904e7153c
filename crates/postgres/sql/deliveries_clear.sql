DELETE FROM deliveries t USING unnest($2::text[], $3::text[]) AS u(name, source)
WHERE t.ns = $1 AND t.name = u.name AND t.source = u.source
