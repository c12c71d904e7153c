INSERT INTO trimming (ns, stream, up_to) VALUES ($1, $2, $3)
