-- Only ids, and where the rows lie: the rows of tasks that were created or released a moment ago are known.
SELECT id, rowid FROM tasks WHERE ns = ?1 AND queue = ?2 AND turn = 'ready' ORDER BY priority, run_at, id
