-- The head of a stream that is no task's, and where positions begin in its namespace.
SELECT s.last_seq, s.oldest_seq, s.oldest_at, n.loaded, n.ahead
FROM streams s JOIN namespaces n ON n.ns = s.ns WHERE s.ns = ?1 AND s.stream = ?2
