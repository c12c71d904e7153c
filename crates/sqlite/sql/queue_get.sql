SELECT queue, paused FROM queues WHERE ns = ?1 AND queue = ?2
