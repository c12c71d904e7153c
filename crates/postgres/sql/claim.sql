-- Starts the first ready tasks of a queue, as a plan would, if `enter_to_claim` finds nothing unusual and none of them has an
-- exclusive key. Each of the arrays from `$12` on has a place for each task that is asked for: owner, the same as JSON, key
-- of the claim, length, end and last minute of the lease. `$18` is `$3` in microseconds.
WITH entered AS MATERIALIZED (
    SELECT * FROM enter_to_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
), ready AS MATERIALIZED (
    SELECT *, row_number() OVER () AS number
    FROM (
        SELECT t.ctid AS place, t.exclusive_key IS NULL AS plain, $3 + t.timeout * interval '1 microsecond' AS deadline
        FROM tasks t
        WHERE t.ns = $1 AND t.queue = $5 AND t.turn = 'ready' AND (SELECT fine FROM entered)
        ORDER BY t.priority, t.run_at, t.id
        LIMIT cardinality($12::text[])
        FOR UPDATE SKIP LOCKED
    ) first
), started AS (
    UPDATE tasks t SET
        status = 'running', turn = 'off', revision = t.revision + 1, attempt = t.attempt + 1, updated_at = $3, started_at = $3,
        owner = ($12::text[])[r.number], token = greatest(t.token + 1, $18), heartbeat_at = $3, progress = NULL,
        lease_expires_at = CASE
            WHEN r.deadline < ($16::timestamptz[])[r.number] THEN r.deadline ELSE ($16::timestamptz[])[r.number]
        END,
        lease_minute = CASE
            WHEN r.deadline < ($16::timestamptz[])[r.number] THEN floor(extract(epoch FROM r.deadline) / 60)::bigint
            ELSE ($17::bigint[])[r.number]
        END,
        lease_length = ($15::bigint[])[r.number], claim_key = ($14::text[])[r.number], timer = r.deadline,
        last_seq = t.last_seq + 1, oldest_at = CASE WHEN t.last_seq = t.oldest_seq THEN $3 ELSE t.oldest_at END,
        ord = greatest(t.ord, (SELECT ord FROM entered))
    FROM ready r
    WHERE t.ctid = r.place AND (SELECT bool_and(plain) FROM ready)
    RETURNING r.number, t.ord, {task}
), told AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT $1, 'task/' || s.id, s.last_seq, 'task',
        lpad(to_hex(s.ord), 16, '0') || lpad(to_hex(d.number << 24 | s.number), 16, '0'),
        $3, 'task.started', ('{"attempt":' || s.attempt || ',"owner":' || ($13::text[])[s.number] || '}')::json
    FROM started s CROSS JOIN (SELECT nextval('event_numbers') AS number) d
)
SELECT e.fine, e.stored, e.version, s.* FROM entered e LEFT JOIN started s ON true
