SELECT queue FROM queues WHERE ns = $1 AND paused
