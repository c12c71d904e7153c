-- For changes that are decided before the server is asked, and made by one statement.

-- Holds a namespace together with others who write to it, and then takes a number: `ord` is what positions begin with,
-- `version` what rows that are written now have as `xmin`. Refuses if what was decided is of another time than now.
CREATE FUNCTION enter(space bigint, shown timestamptz, OUT stored timestamptz, OUT version integer, OUT ord bigint)
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), space::integer);
    stored := clock_timestamp();
    IF abs(extract(epoch FROM stored - shown)) > 0.25 THEN
        RAISE EXCEPTION 'it is % by now', stored USING ERRCODE = 'serialization_failure';
    END IF;
    number := pg_current_xact_id()::text::bigint;
    version := number::bit(32)::integer;
    -- This look is newer than the statement: whoever had the namespace for itself may have changed it.
    SELECT n.epoch << 48 | number INTO ord FROM namespaces n WHERE n.ns = space;
END $$;

-- Refuses if a task depends on one of these. They are held by now (`held` tells), and whoever makes a task that depends on
-- one holds it too, so this look, which is newer than the statement, misses none.
CREATE FUNCTION nobody_depends(space bigint, tasks uuid[], held bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM (SELECT space AS ns, * FROM unnest(tasks) AS u(id) OFFSET 0) u
            JOIN dependencies d ON d.ns = u.ns AND d.dependency = u.id
    ) THEN
        RAISE EXCEPTION 'a task depends on one of % that change', held USING ERRCODE = 'serialization_failure';
    END IF;
END $$;
