-- A plain completion.
UPDATE tasks SET
    status = ?3, revision = ?4, updated_at = ?5, finished_at = ?6, owner = ?7,
    lease_expires_at = ?8, heartbeat_at = ?9, lease_length = ?10, claim_key = ?11, last_seq = ?12,
    oldest_at = ?13, output = ?14
WHERE rowid = coalesce(?15, (SELECT rowid FROM tasks WHERE ns = ?1 AND id = ?2)) AND +ns = ?1 AND +id = ?2
