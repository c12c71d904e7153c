DELETE FROM pollers t USING unnest($2::text[], $3::text[]) AS u(queue, owner)
WHERE t.ns = $1 AND t.queue = u.queue AND t.owner = u.owner
