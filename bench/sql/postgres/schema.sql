-- Our tables as far as the rivals write them: all columns, primary keys, storage settings, and the index of ready tasks.

CREATE TABLE tasks (
    ns                bigint NOT NULL,
    id                uuid NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL,
    turn              text COLLATE "C" NOT NULL,
    priority          smallint NOT NULL,
    run_at            timestamptz NOT NULL,
    rank              bigint NOT NULL,
    revision          bigint NOT NULL,
    attempt           bigint NOT NULL,
    failures          bigint NOT NULL,
    lease_losses      bigint NOT NULL,
    max_attempts      bigint NOT NULL,
    max_lease_losses  bigint NOT NULL,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    started_at        timestamptz,
    finished_at       timestamptz,
    expires_at        timestamptz,
    timeout           bigint,
    cancel_requested  boolean NOT NULL,
    owner             text COLLATE "C",
    token             bigint NOT NULL,
    lease_expires_at  timestamptz,
    heartbeat_at      timestamptz,
    lease_length      bigint,
    claim_key         text COLLATE "C",
    thread            text COLLATE "C",
    parent            uuid,
    root              uuid NOT NULL,
    child_key         text COLLATE "C",
    idempotency_key   text COLLATE "C",
    exclusive_key     text COLLATE "C",
    depth             bigint NOT NULL,
    children          bigint NOT NULL,
    open_children     bigint NOT NULL,
    failed_by         uuid,
    last_seq          bigint NOT NULL,
    oldest_seq        bigint NOT NULL,
    oldest_at         timestamptz,
    request           bytea NOT NULL,
    depends_on        uuid[] NOT NULL,
    open_dependencies uuid[] NOT NULL,
    labels            jsonb NOT NULL,
    backoff           json NOT NULL,
    waiting_for       json,
    resumed_by        json,
    traceparent       text,
    error             json,
    metadata          json,
    progress          json,
    input             json,
    output            json,
    timer             timestamptz,
    lease_minute      bigint,
    ord               bigint NOT NULL DEFAULT 0,
    aged              boolean NOT NULL DEFAULT false,
    PRIMARY KEY (ns, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_ready ON tasks (ns, queue, priority, run_at, id) WHERE turn = 'ready';

CREATE TABLE streams (
    ns         bigint NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    last_seq   bigint NOT NULL,
    oldest_seq bigint NOT NULL,
    oldest_at  timestamptz,
    ord        bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (ns, stream)
) WITH (fillfactor = 70);

CREATE TABLE events (
    ns       bigint NOT NULL,
    stream   text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    category text COLLATE "C" NOT NULL,
    position text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    type     text NOT NULL,
    actor    text,
    data     json,
    PRIMARY KEY (ns, stream, seq)
);

CREATE TABLE documents (
    ns             bigint NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    name           text COLLATE "C" NOT NULL,
    revision       bigint NOT NULL,
    schema_version bigint,
    updated_at     timestamptz NOT NULL,
    expires_at     timestamptz,
    labels         jsonb NOT NULL,
    content_type   text,
    body           json,
    content        bytea,
    PRIMARY KEY (ns, kind, name)
);

CREATE TABLE entries (
    ns             bigint NOT NULL,
    key            text COLLATE "C" NOT NULL,
    set_at         timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    value          json NOT NULL,
    expires_minute bigint NOT NULL,
    PRIMARY KEY (ns, key)
) WITH (fillfactor = 80);

CREATE TABLE locks (
    ns          bigint NOT NULL,
    key         text COLLATE "C" NOT NULL,
    token       bigint NOT NULL,
    owner       text,
    acquired_at timestamptz,
    expires_at  timestamptz,
    forget_at   timestamptz NOT NULL,
    forget_hour bigint NOT NULL,
    PRIMARY KEY (ns, key)
) WITH (fillfactor = 70);
