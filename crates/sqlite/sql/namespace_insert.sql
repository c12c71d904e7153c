INSERT INTO namespaces (name) VALUES (?1) RETURNING ns
