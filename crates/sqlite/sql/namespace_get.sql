SELECT ns, last_position FROM namespaces WHERE name = ?1
