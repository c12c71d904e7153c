-- For changes that are decided and made by one statement: the same with fewer statements within, and claims.

-- Holds a namespace together with others who write to it, and then takes a number: `ord` is what positions begin with,
-- `version` what rows that are written now have as `xmin`. Refuses if what was decided is of another time than now.
CREATE OR REPLACE FUNCTION enter(space bigint, shown timestamptz, OUT stored timestamptz, OUT version integer, OUT ord bigint)
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    -- What stands in a condition is no statement, which would take longer.
    IF pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), space::integer) IS NULL THEN
        NULL;
    END IF;
    stored := clock_timestamp();
    IF stored NOT BETWEEN shown - interval '0.25 s' AND shown + interval '0.25 s' THEN
        RAISE EXCEPTION 'it is % by now', stored USING ERRCODE = 'serialization_failure';
    END IF;
    number := pg_current_xact_id()::text::bigint;
    version := number::bit(32)::integer;
    -- This look is newer than the statement: whoever had the namespace for itself may have changed it.
    SELECT n.epoch << 48 | number INTO ord FROM namespaces n WHERE n.ns = space;
END $$;

-- The same, where some rows must not be there. If they are, or if it is another time, that is told and no error: nothing is
-- written then. Each look is newer than the statement. Documents are held by their numbers, as by everyone who makes one.
CREATE FUNCTION enter_anew(
    space bigint, shown timestamptz, actors text[], answer_keys text[], idempotency_keys text[], lock_keys text[],
    document_numbers bigint[], kinds text[], names text[], floor_kinds text[], entry_keys text[], stream_names text[],
    OUT fine boolean, OUT stored timestamptz, OUT version integer, OUT ord bigint
) LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    IF pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), space::integer) IS NULL THEN
        NULL;
    END IF;
    IF cardinality(document_numbers) > 0 THEN
        PERFORM pg_advisory_xact_lock(k) FROM unnest(document_numbers) AS u(k);
    END IF;
    stored := clock_timestamp();
    fine := shown IS NULL OR stored BETWEEN shown - interval '0.25 s' AND shown + interval '0.25 s';
    IF fine AND cardinality(answer_keys) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(actors) AS actor, unnest(answer_keys) AS key OFFSET 0) u
                JOIN answers t ON t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
        );
    END IF;
    IF fine AND cardinality(idempotency_keys) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(idempotency_keys) AS key OFFSET 0) u
                JOIN tasks t ON t.ns = u.ns AND t.idempotency_key = u.key
        );
    END IF;
    IF fine AND cardinality(lock_keys) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(lock_keys) AS key OFFSET 0) u
                JOIN locks t ON t.ns = u.ns AND t.key = u.key
        );
    END IF;
    IF fine AND cardinality(names) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(kinds) AS kind, unnest(names) AS name OFFSET 0) u
                JOIN documents t ON t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
        );
    END IF;
    IF fine AND cardinality(floor_kinds) > 0 THEN
        fine := NOT EXISTS (SELECT 1 FROM floors t WHERE t.ns = space AND t.kind = ANY (floor_kinds));
    END IF;
    IF fine AND cardinality(entry_keys) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(entry_keys) AS key OFFSET 0) u
                JOIN entries t ON t.ns = u.ns AND t.key = u.key
        );
    END IF;
    IF fine AND cardinality(stream_names) > 0 THEN
        fine := NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(stream_names) AS stream OFFSET 0) u
                JOIN streams t ON t.ns = u.ns AND t.stream = u.stream
        );
    END IF;
    IF fine THEN
        number := pg_current_xact_id()::text::bigint;
        version := number::bit(32)::integer;
        SELECT n.epoch << 48 | number INTO ord FROM namespaces n WHERE n.ns = space;
    END IF;
END $$;

-- What `touched` does for one statement, for all that are one. It is called only where it fails.
CREATE FUNCTION refuse_change() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows are not as they were remembered' USING ERRCODE = 'serialization_failure';
END $$;

-- Holds what a claim counts on, as `enter` does for other changes, and tells whether it is a plain one: the queue is not
-- paused, nothing in it is due or over, it is known well enough who asks it, and none of the claims was made before. Each
-- look is newer than the statement, and comes after the locks.
CREATE FUNCTION enter_to_claim(
    space bigint, shown timestamptz, moment timestamptz, this_minute bigint, asked text, asked_number bigint,
    pollers_since timestamptz, askers text[], owners text[], keys text[], key_numbers bigint[],
    OUT fine boolean, OUT stored timestamptz, OUT version integer, OUT ord bigint
) LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
    epoch bigint;
BEGIN
    IF pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), space::integer) IS NULL
        OR pg_advisory_xact_lock_shared(asked_number) IS NULL THEN
        NULL;
    END IF;
    IF cardinality(key_numbers) > 0 THEN
        PERFORM pg_advisory_xact_lock(k) FROM unnest(key_numbers) AS u(k);
    END IF;
    stored := clock_timestamp();
    SELECT n.epoch,
        NOT EXISTS (SELECT 1 FROM queues q WHERE q.ns = space AND q.queue = asked AND q.paused)
        AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.ns = space AND t.queue = asked AND t.timer <= moment)
        AND NOT EXISTS (
            SELECT 1 FROM tasks t
            WHERE t.ns = space AND t.queue = asked AND t.lease_minute <= this_minute AND t.lease_expires_at <= moment
        )
        AND cardinality(askers) = (
            SELECT count(*) FROM pollers p
            WHERE p.ns = space AND p.queue = asked AND p.owner = ANY (askers) AND p.at <= moment AND p.at > pollers_since
        )
        AND NOT EXISTS (
            SELECT 1 FROM (SELECT space AS ns, * FROM unnest(owners, keys) AS u(owner, key) OFFSET 0) u
                JOIN tasks t ON t.ns = u.ns AND t.owner = u.owner AND t.claim_key = u.key
        )
    INTO epoch, fine FROM namespaces n WHERE n.ns = space;
    fine := fine AND (shown IS NULL OR stored BETWEEN shown - interval '0.25 s' AND shown + interval '0.25 s');
    IF fine THEN
        number := pg_current_xact_id()::text::bigint;
        version := number::bit(32)::integer;
        ord := epoch << 48 | number;
    END IF;
END $$;
