SELECT ns FROM namespaces WHERE name = $1 FOR UPDATE
