-- Starts the first ready tasks of a queue ($6), as a plan would at $5, if the case is plain: the queue is not paused, nothing in
-- it is due or over ($7 is the minute), what `claim_asked.sql` looks for is not so, and none of the tasks has an exclusive key.
-- Each of the arrays from $8 on has a place for each task that is asked for: owner, the same as JSON, key of the claim, length,
-- end and last minute of the lease. `$14` is `$5` in microseconds. $15 and $16 tell what became of it if the answer is lost.
WITH {entered}, plain AS MATERIALIZED (
    SELECT CASE
        WHEN e.ord IS NULL THEN NULL
        WHEN EXISTS (SELECT 1 FROM queues q WHERE q.ns = $1 AND q.queue = $6 AND q.paused) THEN NULL
        WHEN EXISTS (SELECT 1 FROM tasks t WHERE t.ns = $1 AND t.queue = $6 AND t.timer <= $5) THEN NULL
        WHEN EXISTS (
            SELECT 1 FROM tasks t
            WHERE t.ns = $1 AND t.queue = $6 AND t.lease_minute <= $7 AND t.owner IS NOT NULL AND t.lease_expires_at <= $5
        ) THEN NULL
        {asked}
        ELSE e.ord
    END AS ord
    FROM entered e
), ready AS MATERIALIZED (
    SELECT *, greatest(before, own) AS ord, row_number() OVER () AS number, bool_and(plain) OVER () AS all_plain
    FROM (
        SELECT t.ctid AS place, t.id, t.last_seq + 1 AS seq, t.attempt + 1 AS attempt,
            (SELECT ord FROM plain) AS own, t.ord AS before, t.exclusive_key IS NULL AS plain,
            $5 + t.timeout * interval '1 microsecond' AS deadline
        FROM tasks t
        WHERE t.ns = $1 AND t.queue = $6 AND t.turn = 'ready' AND (SELECT ord FROM plain) IS NOT NULL
        ORDER BY t.priority, t.run_at, t.id
        LIMIT cardinality($8::text[])
        FOR UPDATE SKIP LOCKED
    ) first
), told AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT $1, 'task/' || r.id, r.seq, 'task',
        -- A number is drawn where another transaction, which was higher, wrote to the stream before. See event_insert.
        lpad(to_hex(r.ord), 16, '0')
            || CASE WHEN r.ord = r.own THEN '0000000000' ELSE lpad(to_hex(nextval('event_numbers')), 10, '0') END
            || lpad(to_hex(r.number), 6, '0'),
        $5, 'task.started', ('{"attempt":' || r.attempt || ',"owner":' || ($9::text[])[r.number] || '}')::json
    FROM ready r WHERE r.all_plain
), stroke AS (
    INSERT INTO strokes (pen, stroke, ord)
    SELECT $15::uuid, $16::bigint, r.own FROM ready r WHERE r.number = 1 AND r.all_plain
)
UPDATE tasks t SET
    status = 'running', turn = 'off', revision = t.revision + 1, attempt = r.attempt, updated_at = $5, started_at = $5,
    owner = ($8::text[])[r.number], token = greatest(t.token + 1, $14), heartbeat_at = $5, progress = NULL,
    lease_expires_at = CASE
        WHEN r.deadline < ($12::timestamptz[])[r.number] THEN r.deadline ELSE ($12::timestamptz[])[r.number]
    END,
    lease_minute = CASE
        WHEN r.deadline < ($12::timestamptz[])[r.number] THEN floor(extract(epoch FROM r.deadline) / 60)::bigint
        ELSE ($13::bigint[])[r.number]
    END,
    lease_length = ($11::bigint[])[r.number], claim_key = ($10::text[])[r.number], timer = r.deadline,
    last_seq = r.seq, oldest_at = CASE WHEN t.last_seq = t.oldest_seq THEN $5 ELSE t.oldest_at END, ord = r.ord
FROM ready r
WHERE t.ctid = r.place AND r.all_plain
RETURNING r.own, clock_timestamp(), r.number, {task}
