-- For changes that are decided and made by one statement: they enter a namespace without a function, which costs as much as
-- some of the writes. (`enter`, `enter_anew`, `enter_to_claim` and `nobody_depends` are for releases that call them.)

-- What a process remembers of the epoch of a namespace holds as long as this number stays as it is. It is seen at once by
-- everyone, while a statement sees rows as they were when it began.
CREATE SEQUENCE epoch_changes;
SELECT nextval('epoch_changes');

CREATE FUNCTION count_epoch_changes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM nextval('epoch_changes');
    RETURN NULL;
END $$;

-- Whoever changes an epoch has the namespace for itself until it has ended, and so do those who remember it anew.
CREATE TRIGGER namespaces_epoch AFTER UPDATE OF epoch ON namespaces
    FOR EACH STATEMENT EXECUTE FUNCTION count_epoch_changes();

-- Whether rows that were taken for absent are so. Each look is newer than the statement that asks. Documents are held by
-- their numbers, as by everyone who makes one.
CREATE FUNCTION are_absent(
    space bigint, actors text[], answer_keys text[], idempotency_keys text[], lock_keys text[],
    document_numbers bigint[], kinds text[], names text[], floor_kinds text[], entry_keys text[], stream_names text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    -- What stands in a condition is no statement, which would take longer.
    FOREACH number IN ARRAY document_numbers LOOP
        IF pg_advisory_xact_lock(number) IS NULL THEN
            NULL;
        END IF;
    END LOOP;
    IF cardinality(answer_keys) > 0 AND EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(actors) AS actor, unnest(answer_keys) AS key OFFSET 0) u
            JOIN answers t ON t.ns = u.ns AND t.actor = u.actor AND t.key = u.key
    ) THEN
        RETURN false;
    END IF;
    IF cardinality(idempotency_keys) > 0 AND EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(idempotency_keys) AS key OFFSET 0) u
            JOIN tasks t ON t.ns = u.ns AND t.idempotency_key = u.key
    ) THEN
        RETURN false;
    END IF;
    IF cardinality(lock_keys) > 0 AND EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(lock_keys) AS key OFFSET 0) u
            JOIN locks t ON t.ns = u.ns AND t.key = u.key
    ) THEN
        RETURN false;
    END IF;
    IF cardinality(names) + cardinality(floor_kinds) > 0 AND (
        EXISTS (
            SELECT 1 FROM (SELECT space AS ns, unnest(kinds) AS kind, unnest(names) AS name OFFSET 0) u
                JOIN documents t ON t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
        ) OR EXISTS (SELECT 1 FROM floors t WHERE t.ns = space AND t.kind = ANY (floor_kinds))
    ) THEN
        RETURN false;
    END IF;
    IF cardinality(entry_keys) > 0 AND EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(entry_keys) AS key OFFSET 0) u
            JOIN entries t ON t.ns = u.ns AND t.key = u.key
    ) THEN
        RETURN false;
    END IF;
    RETURN cardinality(stream_names) = 0 OR NOT EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(stream_names) AS stream OFFSET 0) u
            JOIN streams t ON t.ns = u.ns AND t.stream = u.stream
    );
END $$;

-- Whether none of these claims was made before. They are held by their numbers, and the look is newer than that.
CREATE FUNCTION are_first_claims(space bigint, owners text[], keys text[], numbers bigint[])
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(k) FROM unnest(numbers) AS u(k);
    RETURN NOT EXISTS (
        SELECT 1 FROM (SELECT space AS ns, unnest(owners) AS owner, unnest(keys) AS key OFFSET 0) u
            JOIN tasks t ON t.ns = u.ns AND t.owner = u.owner AND t.claim_key = u.key
    );
END $$;

-- Whoever comes to depend on a task writes its row, although nothing in it changes: a process that remembers the row, and
-- ends the task without having seen who depends on it, then finds that it is not as it was.
CREATE FUNCTION rewrite_dependencies() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tasks t SET ord = t.ord FROM (SELECT DISTINCT ns, dependency FROM made OFFSET 0) m
    WHERE t.ns = m.ns AND t.id = m.dependency;
    RETURN NULL;
END $$;

CREATE TRIGGER dependencies_made AFTER INSERT ON dependencies REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION rewrite_dependencies();
