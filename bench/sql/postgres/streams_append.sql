-- Moves each head once, by the number of its events. An event's number is its stream's last one less `back`.
WITH head AS (
    INSERT INTO streams (ns, stream, last_seq, oldest_seq, oldest_at, ord)
    SELECT 1, u.stream, u.count, 0, now(), 1
    FROM unnest($1::text[], $2::bigint[]) AS u(stream, count)
    ON CONFLICT (ns, stream) DO UPDATE SET last_seq = streams.last_seq + excluded.last_seq
    RETURNING stream, last_seq
), event AS (
    INSERT INTO events (ns, stream, seq, category, position, at, type, data)
    SELECT 1, head.stream, head.last_seq - u.back, 'thread', '00000000000000010000000000000001', now(), 'message', u.data
    FROM head JOIN unnest($3::text[], $4::bigint[], $5::json[]) AS u(stream, back, data) USING (stream)
)
SELECT stream, last_seq FROM head
