-- The first event of a category that was loaded with a later position.
SELECT id FROM events WHERE ns = ?1 AND id >> 40 = ?2 AND position IS NOT NULL AND position > ?3 ORDER BY position LIMIT 1
