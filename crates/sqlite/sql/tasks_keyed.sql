SELECT * FROM tasks WHERE ns = ?1 AND queue = ?2 AND exclusive_key IS NOT NULL AND turn <> 'off' AND id > ?3 ORDER BY id
