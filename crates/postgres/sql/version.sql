-- The lower half of this transaction's number, as rows have it.
SELECT pg_current_xact_id()::xid::text::bigint::bit(32)::integer
