DELETE FROM answers t USING (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(actor, key) OFFSET 0) u
WHERE t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
