INSERT INTO events (ns, stream, seq, category, position, at, type, data)
VALUES (1, $1, $2, $3, '00000000000000010000000000000001', now(), $4, $5)
