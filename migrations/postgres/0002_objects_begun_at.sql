-- When an object was begun. A search for objects that no blob has leaves young ones alone: their
-- upload may be under way. Those that were there before count as begun now. The default is what
-- a replica of the release before writes, too, and costs no rewriting of the table.
ALTER TABLE objects ADD COLUMN begun_at bigint NOT NULL
    DEFAULT (extract(epoch FROM now()) * 1000)::bigint;
