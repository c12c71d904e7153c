INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at)
VALUES (1, ?1, 1, 0, ?2)
ON CONFLICT (ns, stream) DO UPDATE SET last_seq = last_seq + 1
RETURNING last_seq
