SELECT stream, last_seq, oldest_seq, oldest_at FROM streams WHERE ns = ?1 AND stream > ?2 AND stream >= ?3 ORDER BY stream
