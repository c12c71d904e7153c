-- The first schema. `ns` is the number of a namespace; `namespaces` has its name. Keys compare as bytes. User JSON is
-- kept as `json`, whose text stays as it came.

CREATE TABLE namespaces (
    ns    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text COLLATE "C" NOT NULL UNIQUE,
    -- Positions given from now on begin with it; it grows when what is stored is ahead of this cluster.
    epoch bigint NOT NULL DEFAULT 0
);

-- The cluster that the positions were given in. In another one, a new epoch begins.
CREATE TABLE cluster (
    identifier bigint NOT NULL
);

CREATE TABLE tasks (
    ns                bigint NOT NULL,
    id                uuid NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL,
    -- Whether it can be claimed: off, later (not due), in_line (for its exclusive key), ready.
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
    -- Microseconds that one attempt may take.
    timeout           bigint,
    cancel_requested  boolean NOT NULL,
    -- The lease is there while `owner` is, from `started_at` on. `token` is the last one given, also after the lease.
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
    -- The head of the stream task/<id>.
    last_seq          bigint NOT NULL,
    oldest_seq        bigint NOT NULL,
    oldest_at         timestamptz,
    -- The hash of the request that made it.
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
    -- When something happens to it by itself, the end of its lease apart.
    timer             timestamptz,
    -- The minute in which the lease ends: an index on it stays as it is through most renewals.
    lease_minute      bigint,
    -- The highest transaction that wrote to its stream, after the epoch.
    ord               bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (ns, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_ready ON tasks (ns, queue, priority, run_at, id) WHERE turn = 'ready';
CREATE INDEX tasks_timer ON tasks (ns, queue, timer, id) WHERE timer IS NOT NULL;
CREATE INDEX tasks_any_timer ON tasks (ns, timer, id) WHERE timer IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (ns, queue, lease_minute) WHERE lease_minute IS NOT NULL;
CREATE INDEX tasks_owned ON tasks (ns, owner, claim_key) WHERE owner IS NOT NULL;
CREATE INDEX tasks_in_line ON tasks (ns, exclusive_key, priority, run_at, id) WHERE turn = 'in_line';
CREATE INDEX tasks_keyed ON tasks (ns, queue, id) WHERE exclusive_key IS NOT NULL AND turn IN ('in_line', 'ready');
CREATE INDEX tasks_exclusive ON tasks (ns, exclusive_key, id) WHERE exclusive_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_idempotency ON tasks (ns, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_child_key ON tasks (ns, parent, child_key) WHERE child_key IS NOT NULL AND parent IS NOT NULL;
CREATE INDEX tasks_children ON tasks (ns, parent, id) WHERE parent IS NOT NULL;
CREATE INDEX tasks_root ON tasks (ns, root, id) WHERE parent IS NOT NULL;
CREATE INDEX tasks_thread ON tasks (ns, thread, id) WHERE thread IS NOT NULL;
CREATE INDEX tasks_finished ON tasks (ns, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_created ON tasks (ns, created_at, id);

-- Who depends on whom, for as long as both are there.
CREATE TABLE dependencies (
    ns         bigint NOT NULL,
    dependency uuid NOT NULL,
    task       uuid NOT NULL,
    PRIMARY KEY (ns, dependency, task)
);
CREATE INDEX dependencies_task ON dependencies (ns, task);

-- Signals that no suspend has consumed: a JSON array, first in first out per name.
CREATE TABLE signals (
    ns   bigint NOT NULL,
    task uuid NOT NULL,
    kept json NOT NULL,
    PRIMARY KEY (ns, task)
);

-- Who has an exclusive key, or is first in line for it.
CREATE TABLE exclusives (
    ns      bigint NOT NULL,
    key     text COLLATE "C" NOT NULL,
    open    bigint NOT NULL,
    holder  uuid,
    nominee uuid,
    PRIMARY KEY (ns, key)
);

-- Derived work that was too much for one commit: what to judge again (JSON), and after which task.
CREATE TABLE chores (
    ns    bigint NOT NULL,
    chore text COLLATE "C" NOT NULL,
    after uuid,
    PRIMARY KEY (ns, chore)
);

CREATE TABLE queues (
    ns     bigint NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    paused boolean NOT NULL,
    PRIMARY KEY (ns, queue)
);

CREATE TABLE pollers (
    ns    bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    at    timestamptz NOT NULL,
    PRIMARY KEY (ns, queue, owner)
);

-- The heads of streams that are not tasks'.
CREATE TABLE streams (
    ns         bigint NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    last_seq   bigint NOT NULL,
    oldest_seq bigint NOT NULL,
    oldest_at  timestamptz,
    -- The highest transaction that wrote to it, after the epoch.
    ord        bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (ns, stream)
) WITH (fillfactor = 70);

-- A position is sixteen digits of an epoch and a transaction, the one that wrote the event or a higher one that wrote to
-- the stream before, then sixteen digits of a number that grows. Loaded events keep the position that they had, below
-- this epoch. A reader of a category goes no further than the oldest transaction that still runs.
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

CREATE UNIQUE INDEX events_category ON events (ns, category, position);

CREATE SEQUENCE event_numbers CACHE 1;

-- The prefixes that are being removed within a transaction; events go in no other way.
CREATE TABLE trimming (
    ns     bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    up_to  bigint NOT NULL,
    PRIMARY KEY (ns, stream)
);

CREATE FUNCTION events_are_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed';
END $$;

CREATE FUNCTION events_go_by_trimming() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM trimming t WHERE t.ns = OLD.ns AND t.stream = OLD.stream AND t.up_to >= OLD.seq) THEN
        RAISE EXCEPTION 'events go only by trimming their stream';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER events_update BEFORE UPDATE ON events FOR EACH STATEMENT EXECUTE FUNCTION events_are_never_changed();
CREATE TRIGGER events_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION events_are_never_changed();
CREATE TRIGGER events_delete BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION events_go_by_trimming();

-- What was trimmed away from a category: a JSON array, for each time the highest position, unless a later one was higher.
CREATE TABLE trims (
    ns       bigint NOT NULL,
    category text COLLATE "C" NOT NULL,
    trims    json NOT NULL,
    PRIMARY KEY (ns, category)
);

-- Consumer groups. `source` is stream:<name> or category:<name>.
CREATE TABLE groups (
    ns         bigint NOT NULL,
    name       text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    cursor     text,
    trims_seen bigint NOT NULL,
    token      bigint NOT NULL,
    PRIMARY KEY (ns, name, source)
);

CREATE TABLE deliveries (
    ns         bigint NOT NULL,
    name       text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    position   text COLLATE "C" NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    consumer   text NOT NULL,
    delivery   bigint NOT NULL,
    token      bigint NOT NULL,
    out        boolean NOT NULL,
    visible_at timestamptz NOT NULL,
    read_key   text,
    PRIMARY KEY (ns, name, source, position)
);

CREATE INDEX deliveries_visible ON deliveries (ns, name, source, visible_at, position);

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
    -- JSON in `body`, or bytes in `content`.
    body           json,
    content        bytea,
    PRIMARY KEY (ns, kind, name)
);

CREATE INDEX documents_expiry ON documents (ns, expires_at) WHERE expires_at IS NOT NULL;

-- What a new document of a kind starts above.
CREATE TABLE floors (
    ns       bigint NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (ns, kind)
);

-- `expires_minute` is the minute of `expires_at`: an index on it stays as it is while an entry is set again and again.
CREATE TABLE entries (
    ns             bigint NOT NULL,
    key            text COLLATE "C" NOT NULL,
    set_at         timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    value          json NOT NULL,
    expires_minute bigint NOT NULL,
    PRIMARY KEY (ns, key)
) WITH (fillfactor = 80);

CREATE INDEX entries_expiry ON entries (ns, expires_minute);

-- Locks, held (`owner`) or remembered so that tokens keep growing. `forget_hour` is the hour of `forget_at`.
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

CREATE INDEX locks_forget ON locks (ns, forget_hour);

-- The stored answers of batches with a key.
CREATE TABLE answers (
    ns         bigint NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    request    bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    replies    json NOT NULL,
    PRIMARY KEY (ns, actor, key)
);

CREATE INDEX answers_expiry ON answers (ns, expires_at);

-- Refuses to go on if a statement of the store touched another number of rows than it knows to be there.
CREATE FUNCTION touched(seen bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF seen <> expected THEN
        RAISE EXCEPTION '% rows were written instead of %', seen, expected USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- For people.

CREATE VIEW messages AS
SELECT n.name AS namespace, substr(e.stream, 8) AS thread, e.seq, e.at, e.type, e.actor, e.data
FROM namespaces n JOIN events e ON e.ns = n.ns AND e.stream >= 'thread/' AND e.stream < 'thread0';

CREATE VIEW queue_depth AS
SELECT n.name AS namespace,
       t.queue,
       coalesce((SELECT paused FROM queues q WHERE q.ns = t.ns AND q.queue = t.queue), false) AS paused,
       count(*) FILTER (WHERE t.turn = 'ready') AS ready,
       count(*) FILTER (WHERE t.status = 'backlog') AS backlog,
       count(*) FILTER (WHERE t.status = 'blocked') AS blocked,
       count(*) FILTER (WHERE t.status = 'pending') AS pending,
       count(*) FILTER (WHERE t.status = 'running') AS running,
       count(*) FILTER (WHERE t.status = 'waiting') AS waiting,
       count(*) FILTER (WHERE t.status = 'completed') AS completed,
       count(*) FILTER (WHERE t.status = 'failed') AS failed,
       count(*) FILTER (WHERE t.status = 'cancelled') AS cancelled
FROM tasks t JOIN namespaces n USING (ns)
GROUP BY n.name, t.ns, t.queue;

CREATE VIEW running_tasks AS
SELECT n.name AS namespace, t.queue, t.id, t.kind, t.owner, t.attempt, t.started_at, t.heartbeat_at, t.lease_expires_at
FROM tasks t JOIN namespaces n USING (ns)
WHERE t.status = 'running';
