-- Our tables as far as the rivals write them: all columns, primary keys, and the index of ready tasks.

CREATE TABLE tasks (
    ns                INTEGER NOT NULL,
    id                TEXT NOT NULL,
    queue             TEXT NOT NULL,
    kind              TEXT NOT NULL,
    status            TEXT NOT NULL,
    turn              TEXT NOT NULL,
    priority          INTEGER NOT NULL,
    run_at            INTEGER NOT NULL,
    rank              INTEGER NOT NULL,
    revision          INTEGER NOT NULL,
    attempt           INTEGER NOT NULL,
    failures          INTEGER NOT NULL,
    lease_losses      INTEGER NOT NULL,
    max_attempts      INTEGER NOT NULL,
    max_lease_losses  INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    started_at        INTEGER,
    finished_at       INTEGER,
    expires_at        INTEGER,
    timeout           INTEGER,
    cancel_requested  INTEGER NOT NULL,
    owner             TEXT,
    token             INTEGER NOT NULL,
    lease_expires_at  INTEGER,
    heartbeat_at      INTEGER,
    lease_length      INTEGER,
    claim_key         TEXT,
    thread            TEXT,
    parent            TEXT,
    root              TEXT,
    child_key         TEXT,
    idempotency_key   TEXT,
    exclusive_key     TEXT,
    depth             INTEGER NOT NULL,
    children          INTEGER NOT NULL,
    open_children     INTEGER NOT NULL,
    failed_by         TEXT,
    last_seq          INTEGER NOT NULL,
    oldest_seq        INTEGER NOT NULL,
    oldest_at         INTEGER,
    request           BLOB NOT NULL,
    depends_on        TEXT,
    open_dependencies TEXT,
    labels            TEXT,
    backoff           TEXT,
    waiting_for       TEXT,
    resumed_by        TEXT,
    traceparent       TEXT,
    error             TEXT,
    metadata          TEXT,
    progress          TEXT,
    input             TEXT,
    output            TEXT
) STRICT;

CREATE UNIQUE INDEX tasks_id ON tasks (ns, id);
CREATE INDEX tasks_ready ON tasks (ns, queue, priority, run_at, id) WHERE turn = 'ready';

CREATE TABLE streams (
    ns         INTEGER NOT NULL,
    stream     TEXT NOT NULL,
    last_seq   INTEGER NOT NULL,
    oldest_seq INTEGER NOT NULL,
    oldest_at  INTEGER,
    PRIMARY KEY (ns, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id       INTEGER PRIMARY KEY,
    ns       INTEGER NOT NULL,
    stream   TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    type     TEXT NOT NULL,
    actor    TEXT,
    data     TEXT,
    position TEXT
) STRICT;

CREATE UNIQUE INDEX events_stream ON events (ns, stream, seq);

CREATE TABLE documents (
    ns             INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    name           TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    schema_version INTEGER,
    updated_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    labels         TEXT,
    content_type   TEXT,
    body           TEXT,
    content        BLOB
) STRICT;

CREATE UNIQUE INDEX documents_name ON documents (ns, kind, name);

CREATE TABLE entries (
    ns         INTEGER NOT NULL,
    key        TEXT NOT NULL,
    set_at     INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE locks (
    ns          INTEGER NOT NULL,
    key         TEXT NOT NULL,
    token       INTEGER NOT NULL,
    owner       TEXT,
    acquired_at INTEGER,
    expires_at  INTEGER,
    forget_at   INTEGER NOT NULL,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;
