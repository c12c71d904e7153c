INSERT INTO events (ns, stream, seq, category, position, at, type, data)
VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)
