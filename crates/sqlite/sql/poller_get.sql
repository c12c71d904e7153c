SELECT queue, owner, at FROM pollers WHERE ns = ?1 AND queue = ?2 AND owner = ?3
