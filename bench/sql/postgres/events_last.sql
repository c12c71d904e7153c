SELECT seq, position, at, type, actor, data
FROM events
WHERE ns = 1 AND stream = $1
ORDER BY seq DESC
LIMIT 50
