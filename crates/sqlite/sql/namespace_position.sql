UPDATE namespaces SET last_position = ?2 WHERE ns = ?1
