DELETE FROM streams t USING unnest($2::text[]) AS u(stream)
WHERE t.ns = $1 AND t.stream = u.stream
