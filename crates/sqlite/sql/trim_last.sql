-- The highest position that a trim removes.
SELECT max(position) FROM events WHERE ns = ?1 AND stream = ?2 AND seq <= ?3
