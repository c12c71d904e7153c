SELECT t.idempotency_key, t.id FROM tasks t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::text[]) AS u(key) OFFSET 0) u
    ON t.ns = u.ns AND t.idempotency_key = u.key
