DELETE FROM floors t USING unnest($2::text[]) AS u(kind)
WHERE t.ns = $1 AND t.kind = u.kind
