-- What changes in the life of a task; what it was made with stays.
UPDATE tasks t SET
    status = u.status, turn = u.turn, run_at = u.run_at, revision = u.revision, attempt = u.attempt,
    failures = u.failures, lease_losses = u.lease_losses, updated_at = u.updated_at, started_at = u.started_at,
    finished_at = u.finished_at, cancel_requested = u.cancel_requested, owner = u.owner, token = u.token,
    lease_expires_at = u.lease_expires_at, heartbeat_at = u.heartbeat_at, lease_length = u.lease_length,
    claim_key = u.claim_key, children = u.children, open_children = u.open_children, last_seq = u.last_seq,
    oldest_seq = u.oldest_seq, oldest_at = u.oldest_at, waiting_for = u.waiting_for,
    resumed_by = u.resumed_by, error = u.error, progress = u.progress, output = u.output, timer = u.timer,
    lease_minute = u.lease_minute,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns,
    unnest($2::uuid[]) AS id, unnest($3::text[]) AS status, unnest($4::text[]) AS turn,
    unnest($5::timestamptz[]) AS run_at, unnest($6::bigint[]) AS revision, unnest($7::bigint[]) AS attempt,
    unnest($8::bigint[]) AS failures, unnest($9::bigint[]) AS lease_losses, unnest($10::timestamptz[]) AS updated_at,
    unnest($11::timestamptz[]) AS started_at, unnest($12::timestamptz[]) AS finished_at,
    unnest($13::boolean[]) AS cancel_requested, unnest($14::text[]) AS owner, unnest($15::bigint[]) AS token,
    unnest($16::timestamptz[]) AS lease_expires_at, unnest($17::timestamptz[]) AS heartbeat_at,
    unnest($18::bigint[]) AS lease_length, unnest($19::text[]) AS claim_key, unnest($20::bigint[]) AS children,
    unnest($21::bigint[]) AS open_children, unnest($22::bigint[]) AS last_seq, unnest($23::bigint[]) AS oldest_seq,
    unnest($24::timestamptz[]) AS oldest_at, unnest($25::json[]) AS waiting_for, unnest($26::json[]) AS resumed_by,
    unnest($27::json[]) AS error, unnest($28::json[]) AS progress, unnest($29::json[]) AS output,
    unnest($30::timestamptz[]) AS timer, unnest($31::bigint[]) AS lease_minute
OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
