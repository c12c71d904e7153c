-- Whoever loads a namespace has its key for itself.
SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' namespace'), $1::bigint::integer)
