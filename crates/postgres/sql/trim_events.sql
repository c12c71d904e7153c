WITH gone AS (DELETE FROM events WHERE ns = $1 AND stream = $2 AND seq <= $3 RETURNING position)
SELECT max(position) FROM gone
