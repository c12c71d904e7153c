-- When it expires in the same minute as before, so that no index changes.
UPDATE entries SET set_at = ?3, expires_at = ?4, value = ?5 WHERE ns = ?1 AND key = ?2
