-- What ours has beyond keys and ready tasks, and creates, claims and ends write: leases, owners, what ended, and the order
-- of categories. (Rivals give all events one position; the last columns make up for it.)
CREATE INDEX tasks_running ON tasks (ns, queue, lease_minute, owner) WHERE owner IS NOT NULL;
CREATE INDEX tasks_finished ON tasks (ns, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX events_category ON events (ns, category, position, stream, seq);
