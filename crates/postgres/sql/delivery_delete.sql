DELETE FROM deliveries t USING unnest($2::text[], $3::text[], $4::text[]) AS u(name, source, position)
WHERE t.ns = $1 AND t.name = u.name AND t.source = u.source AND t.position = u.position
