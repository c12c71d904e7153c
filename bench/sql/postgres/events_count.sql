SELECT count(*)
FROM events
WHERE ns = 1 AND stream >= $1 AND stream < $1 || '~'
