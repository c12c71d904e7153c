SELECT ns, last_position, loaded, ahead FROM namespaces WHERE name = ?1
