-- The last event that a trim removes.
SELECT id, position FROM events WHERE ns = ?1 AND stream = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1
