-- A statement of its own after the last lock: in the locking one it shows the time before the wait.
SELECT clock_timestamp()
