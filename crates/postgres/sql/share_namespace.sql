-- Whoever writes to a namespace holds its key together with others, from before its transaction has a number.
SELECT pg_advisory_xact_lock_shared(hashtext(current_schema() || ' namespace'), $1::bigint::integer)
