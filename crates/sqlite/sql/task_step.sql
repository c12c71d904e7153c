-- A plain start, completion or release: the fewer columns an update names, the less it costs.
UPDATE tasks SET
    status = ?3, turn = ?4, revision = ?5, attempt = ?6, updated_at = ?7, started_at = ?8,
    finished_at = ?9, timer = ?10, owner = ?11, token = ?12, lease_expires_at = ?13,
    heartbeat_at = ?14, lease_length = ?15, claim_key = ?16, last_seq = ?17, oldest_at = ?18,
    output = ?19
WHERE ns = ?1 AND id = ?2
