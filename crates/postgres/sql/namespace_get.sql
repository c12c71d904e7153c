SELECT ns FROM namespaces WHERE name = $1
