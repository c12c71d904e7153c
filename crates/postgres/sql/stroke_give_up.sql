-- Waits for whoever is about to write with this number. If nobody does, nobody can any more.
INSERT INTO strokes (pen, stroke)
VALUES ($1, $2)
ON CONFLICT DO NOTHING
