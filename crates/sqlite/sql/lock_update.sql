-- When it is forgotten in the same hour as before, so that no index changes.
UPDATE locks SET token = ?3, owner = ?4, acquired_at = ?5, expires_at = ?6, forget_at = ?7 WHERE ns = ?1 AND key = ?2
