-- When an object was begun. A search for objects that no blob has leaves young ones alone: their
-- upload may be under way. Of those that were there before, none is.
ALTER TABLE objects ADD COLUMN begun_at INTEGER NOT NULL DEFAULT 0;
