-- A plain completion: no column of an index is named.
UPDATE tasks SET
    status = ?3, revision = ?4, updated_at = ?5, finished_at = ?6, timer = ?7, owner = ?8,
    lease_expires_at = ?9, heartbeat_at = ?10, lease_length = ?11, claim_key = ?12, last_seq = ?13,
    oldest_at = ?14, output = ?15
WHERE ns = ?1 AND id = ?2
