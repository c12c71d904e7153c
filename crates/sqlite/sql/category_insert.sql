INSERT INTO categories (ns, name) VALUES (?1, ?2) RETURNING category
