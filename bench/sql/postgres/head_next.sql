INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at, ord)
VALUES (1, $1, 1, 0, now(), 1)
ON CONFLICT (ns, stream) DO UPDATE SET last_seq = streams.last_seq + 1
RETURNING last_seq
