-- A task that changes gets a new entry in every index that it is in, and each statement prepares the conditions of all. So what
-- can be found by one index has one.

-- Who has which tasks, and which leases are over: few tasks run at a time, so that those of one owner are found among them.
CREATE INDEX tasks_running ON tasks (ns, queue, lease_minute, owner) WHERE owner IS NOT NULL;
DROP INDEX tasks_leased;

-- What a claim with a key has given: most claims have none.
CREATE INDEX tasks_claimed ON tasks (ns, owner, claim_key) WHERE claim_key IS NOT NULL;
DROP INDEX tasks_owned;

-- Who has an exclusive key, and who waits for it in which order.
CREATE INDEX tasks_contending ON tasks (ns, exclusive_key, turn, priority, run_at, id) WHERE exclusive_key IS NOT NULL;
DROP INDEX tasks_in_line;
DROP INDEX tasks_exclusive;
