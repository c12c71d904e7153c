UPDATE namespaces SET loaded = ?2, ahead = ?3 WHERE ns = ?1
