INSERT INTO events (id, ns, stream, seq, at, type, actor, data, position)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
