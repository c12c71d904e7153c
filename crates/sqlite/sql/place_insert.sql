INSERT OR IGNORE INTO task_places (ns, by, key, first, second, task) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
