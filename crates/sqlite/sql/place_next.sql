SELECT min(first) FROM task_places WHERE ns = ?1 AND by = ?2 AND key = ?3
