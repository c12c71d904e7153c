SELECT tasks.* FROM task_places p CROSS JOIN tasks ON tasks.ns = p.ns AND tasks.id = p.task
WHERE p.ns = ?1 AND p.by = ?2 AND p.key = ?3 AND (p.first, p.second, p.task) > (?4, ?5, ?6) AND p.first <= ?7
ORDER BY p.first, p.second, p.task
