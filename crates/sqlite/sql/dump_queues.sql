SELECT queue, paused FROM queues WHERE ns = ?1 ORDER BY queue
