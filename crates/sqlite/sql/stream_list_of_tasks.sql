-- The names of tasks' streams come in the order of the ids.
SELECT id, last_seq, oldest_seq FROM tasks WHERE ns = ?1 AND id > ?2 AND id >= ?3 ORDER BY id
