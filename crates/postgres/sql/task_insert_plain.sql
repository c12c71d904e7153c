-- New tasks to which nothing has happened yet, without family, dependencies and exclusive key.
INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, expires_at, timeout, cancel_requested, token, thread, root,
    idempotency_key, depth, children, open_children, last_seq, oldest_seq, oldest_at, request, depends_on,
    open_dependencies, labels, backoff, traceparent, metadata, input, timer, aged, ord
)
SELECT
    $1, u.id, u.queue, u.kind, u.status, u.turn, u.priority, u.run_at, u.rank, 1, 0, 0, 0,
    u.max_attempts, u.max_lease_losses, u.created_at, u.created_at, u.expires_at, u.timeout, false, 0, u.thread, u.id,
    u.idempotency_key, 0, 0, 0, 1, 0, u.created_at, u.request, '{}',
    '{}', u.labels, u.backoff, u.traceparent, u.metadata, u.input, u.timer, true,
    ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM (SELECT
    unnest($2::uuid[]) AS id, unnest($3::text[]) AS queue, unnest($4::text[]) AS kind, unnest($5::text[]) AS status,
    unnest($6::text[]) AS turn, unnest($7::smallint[]) AS priority, unnest($8::timestamptz[]) AS run_at,
    unnest($9::bigint[]) AS rank, unnest($10::bigint[]) AS max_attempts, unnest($11::bigint[]) AS max_lease_losses,
    unnest($12::timestamptz[]) AS created_at, unnest($13::timestamptz[]) AS expires_at,
    unnest($14::bigint[]) AS timeout, unnest($15::text[]) AS thread, unnest($16::text[]) AS idempotency_key,
    unnest($17::bytea[]) AS request, unnest($18::jsonb[]) AS labels, unnest($19::json[]) AS backoff,
    unnest($20::text[]) AS traceparent, unnest($21::json[]) AS metadata, unnest($22::json[]) AS input,
    unnest($23::timestamptz[]) AS timer
) u
