-- In the order of positions, whatever their categories; 2^40 - 1 leaves an event's own number.
WITH ordered AS MATERIALIZED (SELECT id FROM events WHERE ns = ?1 ORDER BY id & 1099511627775)
SELECT id, position, stream, seq, at, type, actor, data FROM ordered CROSS JOIN events USING (id)
