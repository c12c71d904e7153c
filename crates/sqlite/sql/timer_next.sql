SELECT min(first) FROM task_places WHERE ns = ?1 AND by = 'timer' AND key = ?2
