INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ns, stream) DO UPDATE SET last_seq = excluded.last_seq, oldest_seq = excluded.oldest_seq, oldest_at = excluded.oldest_at
