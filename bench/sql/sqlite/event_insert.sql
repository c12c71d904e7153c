INSERT INTO events (ns, stream, seq, at, type, data)
VALUES (1, ?1, ?2, ?3, ?4, ?5)
