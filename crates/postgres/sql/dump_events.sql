-- In the order of positions, whatever their categories.
SELECT t.stream, t.seq, t.position, t.at, t.type, t.actor, t.data FROM events t WHERE t.ns = $1 ORDER BY t.position
