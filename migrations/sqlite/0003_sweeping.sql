-- What a sweep looks for is found by its time, and graphs that are being erased have a place.

-- When a `deliver` blob is to be looked at again. Null until a device has fetched it; each that does
-- sets it to 0, whatever it is.
ALTER TABLE blobs ADD COLUMN look_at INTEGER;

UPDATE blobs SET look_at = 0
WHERE state = 'live' AND policy = 'deliver'
  AND EXISTS (SELECT 1 FROM blob_fetches f WHERE f.object = blobs.object);

CREATE INDEX blobs_to_look_at ON blobs (look_at) WHERE state = 'live' AND look_at IS NOT NULL;

CREATE INDEX tombstones_by_age ON records (at) WHERE deleted = 1;

-- When the directory is to be asked about a group's graph again, and within which time it has
-- answered that the group has no members, and nothing else.
ALTER TABLE graphs ADD COLUMN ask_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE graphs ADD COLUMN empty_since INTEGER;
ALTER TABLE graphs ADD COLUMN empty_until INTEGER;

CREATE INDEX graphs_to_ask ON graphs (ask_at) WHERE low IS NULL;

-- Graphs that are being erased. Their rows in `graphs` go last, since the others refer to them; till
-- then they have a storage key that is nobody's ('!' and the number), no members and no epoch.
CREATE TABLE erasures (
    graph INTEGER PRIMARY KEY REFERENCES graphs (id),
    storage_key TEXT NOT NULL,
    -- What is told of its blobs.
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE INDEX erasures_by_key ON erasures (storage_key);
CREATE INDEX erasures_by_age ON erasures (at, graph);
