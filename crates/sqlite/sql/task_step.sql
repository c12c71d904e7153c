-- A plain start or release: the fewer columns an update names, the less it costs.
UPDATE tasks SET
    status = ?3, turn = ?4, revision = ?5, attempt = ?6, updated_at = ?7, started_at = ?8, owner = ?9,
    token = ?10, lease_expires_at = ?11, heartbeat_at = ?12, lease_length = ?13, claim_key = ?14,
    last_seq = ?15, oldest_at = ?16
WHERE rowid = coalesce(?17, (SELECT rowid FROM tasks WHERE ns = ?1 AND id = ?2)) AND +ns = ?1 AND +id = ?2
