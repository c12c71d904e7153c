DELETE FROM queues t USING (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(queue) OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue
