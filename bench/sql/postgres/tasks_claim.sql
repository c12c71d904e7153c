-- The first ready tasks of a queue, as many as there are owners.
WITH ready AS (
    SELECT place, row_number() OVER () AS number
    FROM (
        SELECT ctid AS place
        FROM tasks
        WHERE ns = 1 AND queue = $1 AND turn = 'ready'
        ORDER BY priority, run_at, id
        LIMIT cardinality($2::text[])
        FOR UPDATE SKIP LOCKED
    ) first
), started AS (
    UPDATE tasks t
    SET status = 'running', turn = 'off', revision = revision + 1, attempt = attempt + 1, updated_at = now(),
        started_at = now(), owner = ($2::text[])[number], token = $3, lease_expires_at = now() + interval '1 day',
        heartbeat_at = now(), lease_length = 86400000000, last_seq = 2, lease_minute = $4
    FROM ready
    WHERE t.ctid = ready.place
    RETURNING ready.number, t.id, t.input
), event AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT 1, 'task/' || id, 2, 'task', '00000000000000010000000000000001', now(), 'task.started',
        '{"attempt":1,"owner":"worker-0"}'
    FROM started
)
SELECT number, id, input FROM started
