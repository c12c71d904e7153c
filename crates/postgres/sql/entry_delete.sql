DELETE FROM entries t USING unnest($2::text[]) AS u(key)
WHERE t.ns = $1 AND t.key = u.key
