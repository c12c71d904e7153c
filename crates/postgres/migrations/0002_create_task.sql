-- A function that makes a task within the transaction of whoever calls it: the row, its first event and a wake, or
-- nothing, if that transaction is rolled back.

CREATE FUNCTION refuse_bad_name(field text, name text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF name = '' OR octet_length(name) > 256 OR name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION '% must have 1 to 256 bytes and no control characters', field USING ERRCODE = '22023';
    END IF;
END $$;

-- JSON without the space between its parts, as the library keeps it.
CREATE FUNCTION without_space(body json) RETURNS json LANGUAGE sql IMMUTABLE
RETURN regexp_replace(body::text, '("(?:[^"\\]|\\.)*")|\s+', '\1', 'g')::json;

-- Answers the id of the new task, or of the one that has its idempotency key already.
CREATE FUNCTION create_task(
    kind             text,
    queue            text DEFAULT 'default',
    input            json DEFAULT NULL,
    namespace        text DEFAULT 'default',
    idempotency_key  text DEFAULT NULL,
    run_at           timestamptz DEFAULT NULL,
    priority         integer DEFAULT 0,
    thread           text DEFAULT NULL,
    labels           jsonb DEFAULT '{}',
    metadata         json DEFAULT NULL,
    expires_at       timestamptz DEFAULT NULL,
    timeout          interval DEFAULT NULL,
    max_attempts     integer DEFAULT 3,
    max_lease_losses integer DEFAULT 10,
    rank             bigint DEFAULT 0,
    traceparent      text DEFAULT NULL,
    backlog          boolean DEFAULT false,
    actor            text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
-- A name that stands alone is a parameter; columns are named with their table.
DECLARE
    status CONSTANT text := CASE WHEN backlog THEN 'backlog' ELSE 'pending' END;
    due timestamptz;
    new_id uuid;
    found_id uuid;
    space bigint;
    ord bigint;
    moment timestamptz;
BEGIN
    PERFORM refuse_bad_name(f.field, f.name) FROM (VALUES
        ('kind', coalesce(kind, '')), ('queue', coalesce(queue, '')), ('namespace', coalesce(namespace, '')),
        ('idempotency_key', idempotency_key), ('thread', thread), ('traceparent', traceparent), ('actor', actor)
    ) AS f(field, name);
    input := without_space(input);
    metadata := without_space(metadata);
    IF octet_length(input::text) > 1048576 OR octet_length(metadata::text) > 1048576 THEN
        RAISE EXCEPTION 'input and metadata may have 1 MiB each' USING ERRCODE = '22023';
    END IF;
    -- What jsonb cannot hold, other stores cannot either.
    PERFORM input::jsonb, metadata::jsonb;
    IF json_typeof(metadata) <> 'object' OR jsonb_typeof(labels) <> 'object'
        OR (SELECT count(*) > 64 OR bool_or(jsonb_typeof(l.value) <> 'string') FROM jsonb_each(labels) l)
    THEN
        RAISE EXCEPTION 'metadata must be an object, labels one of at most 64 texts' USING ERRCODE = '22023';
    END IF;
    IF max_attempts < 1 OR max_lease_losses < 1 OR timeout <= interval '0' THEN
        RAISE EXCEPTION 'max_attempts, max_lease_losses and timeout must be positive' USING ERRCODE = '22023';
    END IF;
    -- A place in a category is given by a number that is higher than that of every transaction that has ended when the
    -- namespace is taken. Only a new look tells it, unless this transaction gets its own number after that.
    IF current_setting('transaction_isolation') <> 'read committed' AND pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'in a % transaction, create_task must come before what writes',
            current_setting('transaction_isolation')
            USING ERRCODE = '25001', HINT = 'call it first, or use read committed';
    END IF;
    LOOP
        SELECT n.ns INTO space FROM namespaces n WHERE n.name = namespace;
        EXIT WHEN FOUND;
        INSERT INTO namespaces (name) VALUES (namespace) ON CONFLICT DO NOTHING;
    END LOOP;
    -- Whoever writes holds it together with others; a load has it for itself.
    PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), space::integer);
    LOOP
        IF idempotency_key IS NOT NULL THEN
            SELECT t.id INTO found_id FROM tasks t WHERE t.ns = space AND t.idempotency_key = idempotency_key;
            IF FOUND THEN
                RETURN found_id;
            END IF;
        END IF;
        moment := clock_timestamp();
        due := coalesce(run_at, moment);
        -- Version 7: milliseconds, then chance.
        new_id := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
            substring(int8send((extract(epoch FROM moment) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid;
        SELECT n.epoch << 48 | greatest(
            pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        ) INTO ord FROM namespaces n WHERE n.ns = space;
        INSERT INTO tasks (
            ns, id, queue, kind, status, turn, priority, run_at, rank, revision, attempt, failures, lease_losses,
            max_attempts, max_lease_losses, created_at, updated_at, expires_at, timeout, cancel_requested, token,
            thread, root, idempotency_key, depth, children, open_children, last_seq, oldest_seq, oldest_at, request,
            depends_on, open_dependencies, labels, backoff, traceparent, metadata, input, timer, ord
        ) VALUES (
            space, new_id, queue, kind, status,
            CASE WHEN backlog THEN 'off' WHEN due > moment THEN 'later' ELSE 'ready' END,
            priority, due, rank, 1, 0, 0, 0, max_attempts, max_lease_losses, moment, moment, expires_at,
            (extract(epoch FROM timeout) * 1000000)::bigint, false, 0,
            thread, new_id, idempotency_key, 0, 0, 0, 1, 0, moment,
            -- No hash of the request: whoever comes with the same key is taken to ask for the same.
            decode(repeat('00', 32), 'hex'),
            '{}', '{}', labels, '{"initial_seconds":1,"factor":2,"max_seconds":100}', traceparent, metadata, input,
            CASE WHEN NOT backlog THEN least(CASE WHEN due > moment THEN due END, expires_at) END, ord
        ) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
    END LOOP;
    INSERT INTO events (ns, stream, seq, category, position, at, type, actor, data)
    VALUES (
        space, 'task/' || new_id, 1, 'task',
        lpad(to_hex(ord), 16, '0') || lpad(to_hex(nextval('event_numbers') << 24 | 1), 16, '0'),
        moment, 'task.created', actor,
        format('{"kind":%s,"queue":%s,"status":"%s"}', to_json(kind), to_json(queue), status)::json
    );
    -- Told when the transaction commits; a transaction that makes many tells it once for each queue.
    PERFORM pg_notify(current_schema() || '_wakes', 'sql:+' || namespace || E'\n' || queue);
    RETURN new_id;
END $$;
