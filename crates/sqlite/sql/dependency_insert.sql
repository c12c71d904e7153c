INSERT OR IGNORE INTO dependencies (ns, dependency, task) VALUES (?1, ?2, ?3)
