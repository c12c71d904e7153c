-- The same for its last event.
SELECT
    (SELECT trims FROM trims WHERE ns = $1 AND category = $2) AS trims,
    (SELECT position >= x.bound FROM events WHERE ns = $1 AND category = $2 ORDER BY position DESC LIMIT 1) AS withheld,
    (SELECT position FROM events WHERE ns = $1 AND category = $2 AND position < x.bound ORDER BY position DESC LIMIT 1)
FROM (
    SELECT lpad(to_hex(coalesce((SELECT epoch FROM namespaces WHERE ns = $1), 0) << 48
        | coalesce($3, pg_snapshot_xmin(pg_current_snapshot())::text::bigint)), 16, '0') COLLATE "C" AS bound
) x
