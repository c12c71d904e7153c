entered AS MATERIALIZED (
    -- Holds a namespace together with others who write to it, and then takes a number: positions begin with `ord`, and its lower
    -- half is what rows that are written now have as `xmin`. There is none if nothing is to be done: it was decided for another
    -- time than $2, or the epoch is no longer $3, which it was when $4 changes of epochs had been counted.
    SELECT CASE
        WHEN pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), $1::bigint::integer) IS NULL THEN NULL
        WHEN clock_timestamp() NOT BETWEEN $2::timestamptz - interval '0.25 s' AND $2 + interval '0.25 s' THEN NULL
        WHEN pg_sequence_last_value('epoch_changes') <> $4::bigint THEN NULL
        ELSE $3::bigint << 48 | pg_current_xact_id()::text::bigint
    END AS ord
)
