-- Whoever named the task as a dependency, ended or not, by id.
SELECT tasks.* FROM dependencies JOIN tasks ON tasks.ns = dependencies.ns AND tasks.id = dependencies.task
WHERE dependencies.ns = ?1 AND dependencies.dependency = ?2 AND dependencies.task > ?3
ORDER BY dependencies.task
