DELETE FROM task_places
WHERE ns = ?1 AND by = ?2 AND key = ?3 AND first = ?4 AND second = ?5 AND task = ?6
