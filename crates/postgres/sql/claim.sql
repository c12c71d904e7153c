-- Starts the first ready tasks of a queue ($6), as a plan would at $5, if the case is plain: the queue is not paused, nothing in
-- it is due or over ($7 is the minute), it is known well enough that those ask who are not known here ($9), none of the claims was
-- made before, and none of the tasks has an exclusive key. Each of the arrays from $13 on has a place for each task that is asked for: owner, the same as
-- JSON, key of the claim, length, end and last minute of the lease. `$19` is `$5` in microseconds.
WITH {entered}, plain AS MATERIALIZED (
    SELECT CASE
        WHEN e.ord IS NULL THEN NULL
        WHEN EXISTS (SELECT 1 FROM queues q WHERE q.ns = $1 AND q.queue = $6 AND q.paused) THEN NULL
        WHEN EXISTS (SELECT 1 FROM tasks t WHERE t.ns = $1 AND t.queue = $6 AND t.timer <= $5) THEN NULL
        WHEN EXISTS (
            SELECT 1 FROM tasks t
            WHERE t.ns = $1 AND t.queue = $6 AND t.lease_minute <= $7 AND t.lease_expires_at <= $5
        ) THEN NULL
        WHEN cardinality($9::text[]) > 0 AND cardinality($9) <> (
            SELECT count(*) FROM pollers p
            WHERE p.ns = $1 AND p.queue = $6 AND p.owner = ANY ($9) AND p.at <= $5 AND p.at > $8
        ) THEN NULL
        WHEN cardinality($11::text[]) > 0 AND NOT are_first_claims($1, $10, $11, $12) THEN NULL
        ELSE e.ord
    END AS ord
    FROM entered e
), ready AS MATERIALIZED (
    SELECT *, row_number() OVER () AS number, bool_and(plain) OVER () AS all_plain
    FROM (
        SELECT t.ctid AS place, t.exclusive_key IS NULL AS plain, $5 + t.timeout * interval '1 microsecond' AS deadline
        FROM tasks t
        WHERE t.ns = $1 AND t.queue = $6 AND t.turn = 'ready' AND (SELECT ord FROM plain) IS NOT NULL
        ORDER BY t.priority, t.run_at, t.id
        LIMIT cardinality($13::text[])
        FOR UPDATE SKIP LOCKED
    ) first
), started AS (
    UPDATE tasks t SET
        status = 'running', turn = 'off', revision = t.revision + 1, attempt = t.attempt + 1, updated_at = $5, started_at = $5,
        owner = ($13::text[])[r.number], token = greatest(t.token + 1, $19), heartbeat_at = $5, progress = NULL,
        lease_expires_at = CASE
            WHEN r.deadline < ($17::timestamptz[])[r.number] THEN r.deadline ELSE ($17::timestamptz[])[r.number]
        END,
        lease_minute = CASE
            WHEN r.deadline < ($17::timestamptz[])[r.number] THEN floor(extract(epoch FROM r.deadline) / 60)::bigint
            ELSE ($18::bigint[])[r.number]
        END,
        lease_length = ($16::bigint[])[r.number], claim_key = ($15::text[])[r.number], timer = r.deadline,
        last_seq = t.last_seq + 1, oldest_at = CASE WHEN t.last_seq = t.oldest_seq THEN $5 ELSE t.oldest_at END,
        ord = greatest(t.ord, (SELECT ord FROM plain))
    FROM ready r
    WHERE t.ctid = r.place AND r.all_plain
    RETURNING r.number, t.ord, {task}
), told AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT $1, 'task/' || s.id, s.last_seq, 'task',
        -- A number is drawn where another transaction, which was higher, wrote to the stream before. See event_insert.
        lpad(to_hex(s.ord), 16, '0')
            || CASE WHEN s.ord = (SELECT ord FROM plain) THEN '0000000000' ELSE lpad(to_hex(nextval('event_numbers')), 10, '0') END
            || lpad(to_hex(s.number), 6, '0'),
        $5, 'task.started', ('{"attempt":' || s.attempt || ',"owner":' || ($14::text[])[s.number] || '}')::json
    FROM started s
)
SELECT p.ord, clock_timestamp(), s.* FROM plain p LEFT JOIN started s ON true
