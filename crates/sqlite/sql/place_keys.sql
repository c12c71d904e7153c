-- The keys of a kind of place: one step a key, however many tasks it has.
WITH RECURSIVE named (key) AS (
    SELECT min(key) FROM task_places WHERE ns = ?1 AND by = ?2
    UNION ALL
    SELECT (SELECT min(key) FROM task_places WHERE ns = ?1 AND by = ?2 AND key > named.key)
    FROM named WHERE named.key IS NOT NULL
)
SELECT key FROM named WHERE key IS NOT NULL
