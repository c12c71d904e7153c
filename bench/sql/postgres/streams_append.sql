-- Moves each head once, by the number of its events. The streams come in order; an event's `place` is its stream's, and
-- its number is the stream's last one less `back`.
WITH head AS (
    INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at, ord)
    SELECT 1, u.stream, u.count, 0, now(), 1
    FROM unnest($1::text[], $2::bigint[]) AS u(stream, count)
    ON CONFLICT (ns, stream) DO UPDATE SET last_seq = streams.last_seq + excluded.last_seq
    RETURNING stream, last_seq
), last AS (
    SELECT array_agg(last_seq ORDER BY stream) AS seqs FROM head
), event AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT 1, ($1::text[])[u.place], last.seqs[u.place] - u.back, 'thread', '00000000000000010000000000000001', now(),
        'message', u.data
    FROM last, unnest($3::int[], $4::bigint[], $5::json[]) AS u(place, back, data)
)
SELECT seqs FROM last
