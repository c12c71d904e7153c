SELECT task, kept FROM signals WHERE ns = ?1 ORDER BY task
