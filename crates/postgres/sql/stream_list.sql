SELECT stream, last_seq, oldest_seq FROM streams
WHERE ns = $1 AND stream > $2 AND stream >= $3 AND starts_with(stream, $3) ORDER BY stream LIMIT $4
