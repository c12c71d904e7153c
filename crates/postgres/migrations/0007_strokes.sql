-- Whoever writes gives what it sends at once a number, and a row that is committed with it. If the answer is lost, the row tells
-- what became of it: there is one, or the writer puts one here itself, and then it never comes to anything.

CREATE TABLE strokes (
    -- Who writes: a UUID of version 7, made anew every day at least.
    pen    uuid NOT NULL,
    stroke bigint NOT NULL,
    -- The transaction, after the epoch; none if it was given up.
    ord    bigint,
    PRIMARY KEY (pen, stroke)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
