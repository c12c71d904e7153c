-- Tasks that pass the filters that are given. What follows after it is where they go on, and in which order.
SELECT {task}
FROM tasks t
WHERE t.ns = $1
    AND ($2::text[] IS NULL OR t.status = ANY ($2))
    AND ($3::text IS NULL OR t.queue = $3)
    AND ($4::text IS NULL OR t.kind = $4)
    AND ($5::text IS NULL OR t.thread = $5)
    AND ($6::uuid IS NULL OR t.parent = $6)
    AND ($7::uuid IS NULL OR t.root = $7)
    AND ($8::text IS NULL OR t.owner = $8)
    AND ($9::text IS NULL OR t.idempotency_key = $9)
    AND ($10::text IS NULL OR t.exclusive_key = $10)
    AND ($11::jsonb IS NULL OR t.labels @> $11)
    AND ($12::timestamptz IS NULL OR t.created_at >= $12)
    AND ($13::timestamptz IS NULL OR t.created_at < $13)
    AND ($14::timestamptz IS NULL OR (t.owner IS NOT NULL AND t.heartbeat_at >= $14))
    AND ($15::timestamptz IS NULL OR (t.owner IS NOT NULL AND t.heartbeat_at < $15))
