DELETE FROM answers t USING unnest($2::text[], $3::text[]) AS u(actor, key)
WHERE t.ns = $1 AND t.actor = u.actor AND t.key = u.key
