DELETE FROM floors WHERE ns = ?1 AND kind = ?2
