-- By where its row lies, if that is known.
SELECT *, rowid FROM tasks
WHERE rowid = coalesce(?3, (SELECT rowid FROM tasks WHERE ns = ?1 AND id = ?2)) AND +ns = ?1 AND +id = ?2
