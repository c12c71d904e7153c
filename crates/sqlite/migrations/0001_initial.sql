-- The first schema. Times are microseconds since 1970 (the views show them as text), ids and JSON are text.
-- `ns` is the number of a namespace; `namespaces` has its name.

CREATE TABLE namespaces (
    ns            INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    -- The number of the last event's position; positions are never given again.
    last_position INTEGER NOT NULL DEFAULT 0,
    -- How many events were loaded from a dump, and what their positions are ahead of their numbers here.
    loaded        INTEGER NOT NULL DEFAULT 0,
    ahead         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE tasks (
    ns                INTEGER NOT NULL,
    id                TEXT NOT NULL,
    queue             TEXT NOT NULL,
    kind              TEXT NOT NULL,
    status            TEXT NOT NULL,
    -- Whether it can be claimed: off, later (not due), in_line (for its exclusive key), ready.
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
    -- Microseconds that one attempt may take.
    timeout           INTEGER,
    cancel_requested  INTEGER NOT NULL,
    -- The lease is there while `owner` is, from `started_at` on. `token` is the last one given, also after the lease.
    owner             TEXT,
    token             INTEGER NOT NULL,
    lease_expires_at  INTEGER,
    heartbeat_at      INTEGER,
    lease_length      INTEGER,
    claim_key         TEXT,
    thread            TEXT,
    parent            TEXT,
    -- The top of its family, unless that is the task itself.
    root              TEXT,
    child_key         TEXT,
    idempotency_key   TEXT,
    exclusive_key     TEXT,
    depth             INTEGER NOT NULL,
    children          INTEGER NOT NULL,
    open_children     INTEGER NOT NULL,
    failed_by         TEXT,
    -- The head of the stream task/<id>.
    last_seq          INTEGER NOT NULL,
    oldest_seq        INTEGER NOT NULL,
    oldest_at         INTEGER,
    -- The hash of the request that made it.
    request           BLOB NOT NULL,
    -- JSON from here on, nothing where it would say nothing.
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
CREATE INDEX tasks_leased ON tasks (ns, queue, lease_expires_at) WHERE owner IS NOT NULL;
CREATE INDEX tasks_finished ON tasks (ns, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_created ON tasks (ns, created_at, id);

-- Where else tasks are found. A table and not indexes, since each index of a table costs every insert, also of rows that
-- it does not hold: most tasks that are created, claimed and completed are never in here.
--
-- by            key                      first, second
-- timer         queue                    when something happens to it by itself
-- claim         owner, newline, key      priority, run_at
-- in_line       exclusive key            priority, run_at
-- keyed         queue of a task that is ready or in line, with an exclusive key
-- exclusive     exclusive key
-- idempotency   idempotency key
-- child         parent
-- child_key     parent, slash, child key
-- root          top of its family
-- dependency    what it depends on
-- thread        thread
-- parked                                 created_at; in the backlog, blocked or waiting
-- ended_badly                            created_at; failed or cancelled
CREATE TABLE task_places (
    ns     INTEGER NOT NULL,
    by     TEXT NOT NULL,
    key    TEXT NOT NULL,
    first  INTEGER NOT NULL,
    second INTEGER NOT NULL,
    task   TEXT NOT NULL,
    PRIMARY KEY (ns, by, key, first, second, task)
) STRICT, WITHOUT ROWID;

-- How many tasks of each status a queue has.
CREATE TABLE counts (
    ns     INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    status TEXT NOT NULL,
    tasks  INTEGER NOT NULL,
    PRIMARY KEY (ns, queue, status)
) STRICT, WITHOUT ROWID;

-- Signals that no suspend has consumed: a JSON array, first in first out per name.
CREATE TABLE signals (
    ns   INTEGER NOT NULL,
    task TEXT NOT NULL,
    kept TEXT NOT NULL,
    PRIMARY KEY (ns, task)
) STRICT, WITHOUT ROWID;

-- Who has an exclusive key, or is first in line for it.
CREATE TABLE exclusives (
    ns      INTEGER NOT NULL,
    key     TEXT NOT NULL,
    open    INTEGER NOT NULL,
    holder  TEXT,
    nominee TEXT,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;

-- Derived work that was too much for one commit: what to judge again (JSON), and after which task.
CREATE TABLE chores (
    ns    INTEGER NOT NULL,
    chore TEXT NOT NULL,
    after TEXT,
    PRIMARY KEY (ns, chore)
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    ns     INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    paused INTEGER NOT NULL,
    PRIMARY KEY (ns, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE pollers (
    ns    INTEGER NOT NULL,
    queue TEXT NOT NULL,
    owner TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (ns, queue, owner)
) STRICT, WITHOUT ROWID;

-- The heads of streams that are not tasks'.
CREATE TABLE streams (
    ns         INTEGER NOT NULL,
    stream     TEXT NOT NULL,
    last_seq   INTEGER NOT NULL,
    oldest_seq INTEGER NOT NULL,
    oldest_at  INTEGER,
    PRIMARY KEY (ns, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE categories (
    category INTEGER PRIMARY KEY,
    ns       INTEGER NOT NULL,
    name     TEXT NOT NULL,
    UNIQUE (ns, name)
) STRICT;

-- An event's `id` is the number of its category times 2^40 and its own number in the namespace, so that the events of a
-- category lie together, in their order, and need no index for it. Its position is that number, or the one that it had
-- where it was loaded from.
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
CREATE INDEX events_loaded ON events (ns, id >> 40, position) WHERE position IS NOT NULL;

-- The prefixes that are being removed within the transaction; events go in no other way.
CREATE TABLE trimming (
    ns     INTEGER NOT NULL,
    stream TEXT NOT NULL,
    up_to  INTEGER NOT NULL,
    PRIMARY KEY (ns, stream)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events BEGIN
    SELECT raise(ABORT, 'events are never changed');
END;

CREATE TRIGGER events_go_by_trimming BEFORE DELETE ON events
WHEN NOT EXISTS (
    SELECT 1 FROM trimming WHERE ns = OLD.ns AND stream = OLD.stream AND up_to >= OLD.seq
) BEGIN
    SELECT raise(ABORT, 'events go only by trimming their stream');
END;

-- What was trimmed away from a category: for each time, the highest position, unless a later time's was higher.
CREATE TABLE trims (
    ns       INTEGER NOT NULL,
    category TEXT NOT NULL,
    number   INTEGER NOT NULL,
    position TEXT NOT NULL,
    PRIMARY KEY (ns, category, number)
) STRICT, WITHOUT ROWID;

-- Consumer groups. `source` is stream:<name> or category:<name>.
CREATE TABLE groups (
    ns         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    source     TEXT NOT NULL,
    cursor     TEXT,
    trims_seen INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    PRIMARY KEY (ns, name, source)
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    ns         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    source     TEXT NOT NULL,
    position   TEXT NOT NULL,
    stream     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    consumer   TEXT NOT NULL,
    delivery   INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    out        INTEGER NOT NULL,
    visible_at INTEGER NOT NULL,
    read_key   TEXT,
    PRIMARY KEY (ns, name, source, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_visible ON deliveries (ns, name, source, visible_at, position);

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
    -- JSON in `body`, or bytes in `content`.
    body           TEXT,
    content        BLOB
) STRICT;

CREATE UNIQUE INDEX documents_name ON documents (ns, kind, name);
CREATE INDEX documents_expiry ON documents (ns, expires_at) WHERE expires_at IS NOT NULL;

-- What a new document of a kind starts above.
CREATE TABLE floors (
    ns       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (ns, kind)
) STRICT, WITHOUT ROWID;

-- `expires_minute` is the minute of `expires_at`: an index on it stays as it is while an entry is set again and again.
CREATE TABLE entries (
    ns             INTEGER NOT NULL,
    key            TEXT NOT NULL,
    expires_minute INTEGER NOT NULL,
    set_at         INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    value          TEXT NOT NULL,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX entries_expiry ON entries (ns, expires_minute);

-- Locks, held (`owner`) or remembered so that tokens keep growing. `forget_hour` is the hour of `forget_at`.
CREATE TABLE locks (
    ns          INTEGER NOT NULL,
    key         TEXT NOT NULL,
    forget_hour INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    owner       TEXT,
    acquired_at INTEGER,
    expires_at  INTEGER,
    forget_at   INTEGER NOT NULL,
    PRIMARY KEY (ns, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX locks_forget ON locks (ns, forget_hour);

-- The stored answers of batches with a key.
CREATE TABLE answers (
    ns         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    key        TEXT NOT NULL,
    request    BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    replies    TEXT NOT NULL,
    PRIMARY KEY (ns, actor, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX answers_expiry ON answers (ns, expires_at);

-- For people.

CREATE VIEW messages AS
SELECT n.name AS namespace,
       substr(e.stream, 8) AS thread,
       e.seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.at / 1e6, 'unixepoch') AS at,
       e.type,
       e.actor,
       e.data
FROM namespaces n JOIN events e ON e.ns = n.ns AND e.stream >= 'thread/' AND e.stream < 'thread0';

CREATE VIEW queue_depth AS
SELECT n.name AS namespace,
       c.queue,
       coalesce((SELECT paused FROM queues q WHERE q.ns = c.ns AND q.queue = c.queue), 0) AS paused,
       (SELECT count(*) FROM tasks t WHERE t.ns = c.ns AND t.queue = c.queue AND t.turn = 'ready') AS ready,
       sum(CASE WHEN c.status = 'backlog' THEN c.tasks ELSE 0 END) AS backlog,
       sum(CASE WHEN c.status = 'blocked' THEN c.tasks ELSE 0 END) AS blocked,
       sum(CASE WHEN c.status = 'pending' THEN c.tasks ELSE 0 END) AS pending,
       sum(CASE WHEN c.status = 'running' THEN c.tasks ELSE 0 END) AS running,
       sum(CASE WHEN c.status = 'waiting' THEN c.tasks ELSE 0 END) AS waiting,
       sum(CASE WHEN c.status = 'completed' THEN c.tasks ELSE 0 END) AS completed,
       sum(CASE WHEN c.status = 'failed' THEN c.tasks ELSE 0 END) AS failed,
       sum(CASE WHEN c.status = 'cancelled' THEN c.tasks ELSE 0 END) AS cancelled
FROM counts c JOIN namespaces n USING (ns)
GROUP BY c.ns, c.queue;

CREATE VIEW running_tasks AS
SELECT n.name AS namespace,
       t.queue,
       t.id,
       t.kind,
       t.owner,
       t.attempt,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.started_at / 1e6, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.heartbeat_at / 1e6, 'unixepoch') AS heartbeat_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.lease_expires_at / 1e6, 'unixepoch') AS lease_expires_at
FROM tasks t JOIN namespaces n USING (ns)
WHERE t.status = 'running';
