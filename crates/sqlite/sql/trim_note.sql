INSERT INTO trims (ns, category, number, position) VALUES (?1, ?2, ?3, ?4)
