DELETE FROM entries WHERE ns = ?1 AND key = ?2
