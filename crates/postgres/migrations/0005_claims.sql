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
