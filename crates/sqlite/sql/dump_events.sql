-- Events are written in the order of their positions, so that no sorting is needed.
SELECT stream, seq, position, at, type, actor, data FROM events NOT INDEXED WHERE ns = ?1 ORDER BY rowid
