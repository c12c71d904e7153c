-- The same of a task's stream.
SELECT t.last_seq, t.oldest_seq, t.oldest_at, n.loaded, n.ahead
FROM tasks t JOIN namespaces n ON n.ns = t.ns WHERE t.ns = ?1 AND t.id = ?2
