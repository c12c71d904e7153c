DELETE FROM queues t USING (SELECT $1::bigint AS ns, unnest($2::text[]) AS queue OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue
