-- The first event of a stream that is not older than a time.
SELECT seq, at FROM events WHERE ns = ?1 AND stream = ?2 AND at >= ?3 ORDER BY seq LIMIT 1
