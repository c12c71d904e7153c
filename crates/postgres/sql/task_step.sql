-- What changes when a task is claimed, kept, given back or completed.
UPDATE tasks t SET
    status = u.status, turn = u.turn, revision = u.revision, attempt = u.attempt, updated_at = u.updated_at,
    started_at = u.started_at, finished_at = u.finished_at, owner = u.owner, token = u.token,
    lease_expires_at = u.lease_expires_at, heartbeat_at = u.heartbeat_at, lease_length = u.lease_length,
    claim_key = u.claim_key, last_seq = u.last_seq, output = u.output, lease_minute = u.lease_minute,
    ord = greatest(t.ord, ((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint))
FROM (SELECT $1::bigint AS ns,
    unnest($2::uuid[]) AS id, unnest($3::text[]) AS status, unnest($4::text[]) AS turn,
    unnest($5::bigint[]) AS revision, unnest($6::bigint[]) AS attempt, unnest($7::timestamptz[]) AS updated_at,
    unnest($8::timestamptz[]) AS started_at, unnest($9::timestamptz[]) AS finished_at, unnest($10::text[]) AS owner,
    unnest($11::bigint[]) AS token, unnest($12::timestamptz[]) AS lease_expires_at,
    unnest($13::timestamptz[]) AS heartbeat_at, unnest($14::bigint[]) AS lease_length,
    unnest($15::text[]) AS claim_key, unnest($16::bigint[]) AS last_seq, unnest($17::json[]) AS output,
    unnest($18::bigint[]) AS lease_minute
OFFSET 0) u
WHERE t.ns = u.ns AND t.id = u.id
