SELECT count(*)
FROM tasks
WHERE rowid > ?1 AND queue = ?2 AND status = ?3
