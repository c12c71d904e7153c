-- What was trimmed from a category, whether events of it wait for an older transaction, and its events after a position:
-- only those that are older than every transaction that still runs, or than $5, since nothing can come before them any
-- more.
SELECT
    (SELECT trims FROM trims WHERE ns = $1 AND category = $2) AS trims,
    (SELECT position >= x.bound FROM events WHERE ns = $1 AND category = $2 ORDER BY position DESC LIMIT 1) AS withheld,
    e.stream, e.seq, e.position, e.at, e.type, e.actor, e.data
FROM (
    SELECT lpad(to_hex(coalesce((SELECT epoch FROM namespaces WHERE ns = $1), 0) << 48
        | coalesce($5, pg_snapshot_xmin(pg_current_snapshot())::text::bigint)), 16, '0') COLLATE "C" AS bound
) x LEFT JOIN LATERAL (
    SELECT * FROM events WHERE ns = $1 AND category = $2 AND position > $3 AND position < x.bound
    ORDER BY position LIMIT $4
) e ON true
ORDER BY e.position
