DELETE FROM signals WHERE ns = ?1 AND task = ?2
