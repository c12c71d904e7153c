INSERT INTO tasks (
    ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
    max_attempts, max_lease_losses, created_at, updated_at, started_at, finished_at, expires_at, timeout,
    cancel_requested, owner, token, lease_expires_at, heartbeat_at, lease_length, claim_key, thread, parent,
    root, child_key, idempotency_key, exclusive_key, depth, children, open_children, failed_by, last_seq,
    oldest_seq, oldest_at, request, depends_on, open_dependencies, labels, backoff, waiting_for, resumed_by,
    traceparent, error, metadata, progress, input, output, timer, lease_minute, aged, ord
)
SELECT
    $1, u.id, u.queue, u.kind, u.status, u.turn, u.priority, u.run_at, u.rank, u.revision, u.attempt,
    u.failures, u.lease_losses, u.max_attempts, u.max_lease_losses, u.created_at, u.updated_at, u.started_at,
    u.finished_at, u.expires_at, u.timeout, u.cancel_requested, u.owner, u.token, u.lease_expires_at,
    u.heartbeat_at, u.lease_length, u.claim_key, u.thread, u.parent, u.root, u.child_key, u.idempotency_key,
    u.exclusive_key, u.depth, u.children, u.open_children, u.failed_by, u.last_seq, u.oldest_seq, u.oldest_at,
    u.request, u.depends_on::uuid[], u.open_dependencies::uuid[], u.labels, u.backoff, u.waiting_for,
    u.resumed_by, u.traceparent, u.error, u.metadata, u.progress, u.input, u.output, u.timer, u.lease_minute,
    true, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)
FROM (SELECT
    unnest($2::uuid[]) AS id, unnest($3::text[]) AS queue, unnest($4::text[]) AS kind, unnest($5::text[]) AS status,
    unnest($6::text[]) AS turn, unnest($7::smallint[]) AS priority, unnest($8::timestamptz[]) AS run_at,
    unnest($9::bigint[]) AS rank, unnest($10::bigint[]) AS revision, unnest($11::bigint[]) AS attempt,
    unnest($12::bigint[]) AS failures, unnest($13::bigint[]) AS lease_losses, unnest($14::bigint[]) AS max_attempts,
    unnest($15::bigint[]) AS max_lease_losses, unnest($16::timestamptz[]) AS created_at,
    unnest($17::timestamptz[]) AS updated_at, unnest($18::timestamptz[]) AS started_at,
    unnest($19::timestamptz[]) AS finished_at, unnest($20::timestamptz[]) AS expires_at,
    unnest($21::bigint[]) AS timeout, unnest($22::boolean[]) AS cancel_requested, unnest($23::text[]) AS owner,
    unnest($24::bigint[]) AS token, unnest($25::timestamptz[]) AS lease_expires_at,
    unnest($26::timestamptz[]) AS heartbeat_at, unnest($27::bigint[]) AS lease_length,
    unnest($28::text[]) AS claim_key, unnest($29::text[]) AS thread, unnest($30::uuid[]) AS parent,
    unnest($31::uuid[]) AS root, unnest($32::text[]) AS child_key, unnest($33::text[]) AS idempotency_key,
    unnest($34::text[]) AS exclusive_key, unnest($35::bigint[]) AS depth, unnest($36::bigint[]) AS children,
    unnest($37::bigint[]) AS open_children, unnest($38::uuid[]) AS failed_by, unnest($39::bigint[]) AS last_seq,
    unnest($40::bigint[]) AS oldest_seq, unnest($41::timestamptz[]) AS oldest_at, unnest($42::bytea[]) AS request,
    unnest($43::text[]) AS depends_on, unnest($44::text[]) AS open_dependencies, unnest($45::jsonb[]) AS labels,
    unnest($46::json[]) AS backoff, unnest($47::json[]) AS waiting_for, unnest($48::json[]) AS resumed_by,
    unnest($49::text[]) AS traceparent, unnest($50::json[]) AS error, unnest($51::json[]) AS metadata,
    unnest($52::json[]) AS progress, unnest($53::json[]) AS input, unnest($54::json[]) AS output,
    unnest($55::timestamptz[]) AS timer, unnest($56::bigint[]) AS lease_minute
) u
