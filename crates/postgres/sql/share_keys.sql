-- Holds keys together with others until the end of the transaction, in order.
SELECT pg_advisory_xact_lock_shared(k) FROM (SELECT k FROM unnest($1::bigint[]) AS u(k) ORDER BY k) o
