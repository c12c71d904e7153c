SELECT stream FROM streams
WHERE ns = $1 AND stream > $2 AND stream < $3
    AND (last_seq - oldest_seq > $4 OR oldest_at < $5)
ORDER BY stream LIMIT $6
