UPDATE tasks SET heartbeat_at = ?3, lease_expires_at = ?4, progress = ?5
WHERE rowid = coalesce(?6, (SELECT rowid FROM tasks WHERE ns = ?1 AND id = ?2)) AND +ns = ?1 AND +id = ?2
