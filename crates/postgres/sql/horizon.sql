-- The transaction below which nothing can be added to a namespace any more. Whoever writes to it ($1) holds its key from
-- before it has a number. So this is the lowest number of those who hold the key, or the next after the last that has
-- ended; of those whose number this user may not see, the lowest of all that run. (The locks on numbers tell too little:
-- one that was just given has none yet.) And the next number.
WITH now AS (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
), k AS MATERIALIZED (
    SELECT true AS held, pid FROM pg_locks
    WHERE granted AND locktype = 'advisory' AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = hashtext(current_schema() || ' namespace')::oid AND objid = $1::bigint::oid
)
SELECT least(min(now.next), min(CASE
    -- Only the lower half of the number is shown, and it may be on either side of the next.
    WHEN a.backend_xid IS NOT NULL
        THEN now.next + ((a.backend_xid::text::bigint - now.next + 2147483648) & 4294967295) - 2147483648
    WHEN k.held AND (k.pid IS NULL OR a.pid IS NOT NULL AND a.backend_start IS NULL) THEN now.oldest
END)), min(now.next)
FROM now LEFT JOIN k ON true LEFT JOIN pg_stat_activity a ON a.pid = k.pid
