INSERT INTO answers (ns, actor, key, request, expires_at, replies) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (ns, actor, key) DO UPDATE SET request = excluded.request, expires_at = excluded.expires_at, replies = excluded.replies
