INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
