DELETE FROM dependencies WHERE ns = ?1 AND dependency = ?2 AND task = ?3
