-- The lower half of this transaction's number, as rows have it, if it wrote; and the era of a namespace, which nobody else
-- changes while it is held.
SELECT pg_current_xact_id_if_assigned()::xid::text::bigint::bit(32)::integer, epoch, pg_sequence_last_value('epoch_changes')
FROM namespaces WHERE ns = $1
