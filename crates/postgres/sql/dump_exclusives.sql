SELECT
    t.key, t.open, t.holder, t.nominee
FROM exclusives t WHERE t.ns = $1 ORDER BY t.key
