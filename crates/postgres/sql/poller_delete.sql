DELETE FROM pollers t USING (SELECT $1::bigint AS ns, * FROM unnest($2::text[], $3::text[]) AS u(queue, owner) OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue AND t.owner = u.owner
