-- Locks that end with a session of their holder's process. `session` is a number that a connection of the process holds as
-- an advisory lock, and it is about `session_token` only: a release that does not know these columns leaves them behind
-- when it gives the lock to another.
ALTER TABLE locks ADD COLUMN session bigint, ADD COLUMN session_token bigint;

-- Whether a lock with this token was held for a session that has ended. Numbers are never given again, so it stays ended.
CREATE FUNCTION session_over(session bigint, session_token bigint, token bigint) RETURNS boolean LANGUAGE sql VOLATILE
RETURN CASE WHEN session_token = token THEN pg_try_advisory_xact_lock_shared(session) ELSE false END;
