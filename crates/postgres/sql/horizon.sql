-- The transaction below which nothing can be added to a namespace any more. Whoever writes to it holds its key ($1) from
-- before it has a number: so this is the lowest number of those who hold the key, or the next that will be given.
WITH l AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted),
now AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next)
SELECT least(min(now.next), min(
    -- The lock shows the lower half of the number.
    now.next - ((now.next - x.transactionid::text::bigint) & 4294967295)
))
FROM now LEFT JOIN l k
    ON k.locktype = 'advisory' AND k.objsubid = 1
    AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND k.classid::bigint = $1::bigint >> 32 & 4294967295 AND k.objid::bigint = $1::bigint & 4294967295
LEFT JOIN l x
    ON x.virtualtransaction = k.virtualtransaction AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
