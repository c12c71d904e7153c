SELECT last_seq
FROM streams
WHERE ns = 1 AND stream = ?1
