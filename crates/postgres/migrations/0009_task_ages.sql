-- The order in which tasks were created. As an index on `tasks` it got a new entry whenever a task changed, although the time of
-- creation never does: a seventh of what a claim or an end costs. So it has a table, in which a task stands once.

CREATE TABLE task_ages (
    ns         bigint NOT NULL,
    created_at timestamptz NOT NULL,
    id         uuid NOT NULL,
    PRIMARY KEY (ns, created_at, id)
);

-- Whether whoever makes a task puts it there too. Releases that do not know of this table do not.
ALTER TABLE tasks ADD COLUMN aged boolean NOT NULL DEFAULT false;

INSERT INTO task_ages (ns, created_at, id) SELECT ns, created_at, id FROM tasks;
DROP INDEX tasks_created;

-- With the rights of whoever owns the schema: who was given what `create_task` needs before this table was there goes on with that.
CREATE FUNCTION note_age() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO task_ages (ns, created_at, id) VALUES (NEW.ns, NEW.created_at, NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_made AFTER INSERT ON tasks FOR EACH ROW WHEN (NOT NEW.aged) EXECUTE FUNCTION note_age();

CREATE FUNCTION forget_ages() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    DELETE FROM task_ages a USING gone g WHERE a.ns = g.ns AND a.created_at = g.created_at AND a.id = g.id;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_gone AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forget_ages();

-- So they must mean the table here and no temporary one of the caller's, and nobody else may make triggers of them.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION note_age() SET search_path TO %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION forget_ages() SET search_path TO %I, pg_temp', current_schema());
END $$;
REVOKE EXECUTE ON FUNCTION note_age(), forget_ages() FROM PUBLIC;
