INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at)
VALUES (1, ?1, ?2, 0, ?3)
ON CONFLICT (ns, stream) DO UPDATE SET last_seq = excluded.last_seq
