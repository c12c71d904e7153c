SELECT tasks.* FROM task_places p CROSS JOIN tasks ON tasks.ns = p.ns AND tasks.id = p.task
WHERE p.ns = ?1 AND p.by = ?2 AND p.key = ?3 AND (p.first, p.second, p.task) < (?4, ?5, ?6)
ORDER BY p.first DESC, p.second DESC, p.task DESC
