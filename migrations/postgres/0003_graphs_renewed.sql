-- A replica that remembers a graph may write to it where the graph's row has the version still
-- that it had then: its `xmin`, which every change makes another. Who may push rests on wraps and
-- devices too. So whoever takes away a wrap of the current epoch, or revokes a device that has one,
-- renews the graph's row by that, knowing it or not: older replicas, tools and people with `psql`
-- too. A row that the same transaction has changed already is as good as renewed.
--
-- Where `wraps` is created divided, these triggers stand on the whole of it.

CREATE FUNCTION renew_graphs(due bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF due IS NOT NULL THEN
        PERFORM 1 FROM graphs WHERE id = ANY(due) ORDER BY storage_key FOR NO KEY UPDATE;
        UPDATE graphs SET head = head WHERE id = ANY(due);
    END IF;
END
$$;

CREATE FUNCTION renew_graphs_of_wraps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_graphs(array_agg(g.id))
    FROM (SELECT DISTINCT graph, epoch FROM former WHERE wrap IS NOT NULL) w
    CROSS JOIN LATERAL (
        SELECT g.id FROM graphs g
        WHERE g.id = w.graph AND g.epoch = w.epoch AND g.xmin <> pg_current_xact_id()::xid
        OFFSET 0
    ) g;
    RETURN NULL;
END
$$;

CREATE TRIGGER wraps_changed AFTER UPDATE ON wraps REFERENCING OLD TABLE AS former
    FOR EACH STATEMENT EXECUTE FUNCTION renew_graphs_of_wraps();

CREATE TRIGGER wraps_removed AFTER DELETE ON wraps REFERENCING OLD TABLE AS former
    FOR EACH STATEMENT EXECUTE FUNCTION renew_graphs_of_wraps();

CREATE FUNCTION renew_graphs_of_device() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_graphs(array_agg(g.id))
    FROM (SELECT graph FROM holders WHERE member = OLD.member AND device = OLD.device) h
    CROSS JOIN LATERAL (
        SELECT g.id FROM graphs g
        WHERE g.id = h.graph AND g.xmin <> pg_current_xact_id()::xid AND EXISTS (
            SELECT 1 FROM wraps w
            WHERE w.graph = g.id AND w.epoch = g.epoch AND w.member = OLD.member
              AND w.device = OLD.device AND w.wrap IS NOT NULL
        )
        OFFSET 0
    ) g;
    RETURN NULL;
END
$$;

CREATE TRIGGER device_revoked AFTER UPDATE OF revoked_at ON devices
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL)
    EXECUTE FUNCTION renew_graphs_of_device();

CREATE TRIGGER device_removed AFTER DELETE ON devices
    FOR EACH ROW EXECUTE FUNCTION renew_graphs_of_device();
