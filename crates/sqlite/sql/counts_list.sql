SELECT queue, status, tasks FROM counts WHERE ns = ?1 AND tasks > 0 ORDER BY queue
