-- What changes when a task is claimed, kept, given back or completed.
UPDATE tasks t SET
    status = u.status, turn = u.turn, revision = u.revision, attempt = u.attempt, updated_at = u.updated_at,
    started_at = u.started_at, finished_at = u.finished_at, owner = u.owner, token = u.token,
    lease_expires_at = u.lease_expires_at, heartbeat_at = u.heartbeat_at, lease_length = u.lease_length,
    claim_key = u.claim_key, last_seq = u.last_seq, output = u.output, lease_minute = u.lease_minute,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::timestamptz[], $8::timestamptz[],
    $9::timestamptz[], $10::text[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::bigint[],
    $15::text[], $16::bigint[], $17::json[], $18::bigint[]
) AS u(
    id, status, turn, revision, attempt, updated_at, started_at, finished_at, owner, token, lease_expires_at,
    heartbeat_at, lease_length, claim_key, last_seq, output, lease_minute
) OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
