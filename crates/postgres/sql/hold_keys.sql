-- Holds keys until the end of the transaction, in order.
SELECT pg_advisory_xact_lock(k) FROM (SELECT k FROM unnest($1::bigint[]) AS u(k) ORDER BY k) o
