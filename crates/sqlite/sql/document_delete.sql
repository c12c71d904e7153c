DELETE FROM documents WHERE ns = ?1 AND kind = ?2 AND name = ?3
