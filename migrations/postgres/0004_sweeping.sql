-- What a sweep looks for is found by its time, and graphs that are being erased have a place.

-- When a `deliver` blob is to be looked at again. Null until a device has fetched it; each that does
-- sets it to 0, whatever it is.
ALTER TABLE blobs ADD COLUMN look_at bigint;

UPDATE blobs b SET look_at = 0
WHERE b.state = 'live' AND b.policy = 'deliver' AND EXISTS (
    SELECT 1 FROM blob_fetches f WHERE f.graph = b.graph AND f.object = b.object
);

CREATE INDEX blobs_to_look_at ON blobs (look_at) WHERE state = 'live' AND look_at IS NOT NULL;

-- Whether any row names an object that the blob store lists.
CREATE INDEX blobs_by_object ON blobs (object);

CREATE INDEX tombstones_by_age ON records (at) WHERE deleted;

-- When the directory is to be asked about a group's graph again, and within which time it has
-- answered that the group has no members, and nothing else.
ALTER TABLE graphs
    ADD COLUMN ask_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN empty_since bigint,
    ADD COLUMN empty_until bigint,
    ADD CHECK ((empty_since IS NULL) = (empty_until IS NULL) AND empty_since <= empty_until);

CREATE INDEX graphs_to_ask ON graphs (ask_at) WHERE low IS NULL;

-- Graphs that are being erased. Their rows in `graphs` are gone; what lies in the other tables under
-- their number is removed a few rows at a time.
CREATE TABLE erasures (
    graph bigint PRIMARY KEY,
    storage_key text COLLATE "C" NOT NULL,
    -- What is told of its blobs.
    reason text NOT NULL,
    at bigint NOT NULL
);

CREATE INDEX erasures_by_key ON erasures (storage_key);
CREATE INDEX erasures_by_age ON erasures (at, graph);
