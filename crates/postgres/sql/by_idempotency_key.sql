SELECT t.idempotency_key, t.id FROM tasks t JOIN unnest($2::text[]) AS u(key)
    ON t.ns = $1 AND t.idempotency_key = u.key
