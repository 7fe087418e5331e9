-- Everything the relay keeps on one machine.
--
-- Conventions: ids are text and compared byte for byte (BINARY, SQLite's default); times are
-- milliseconds since 1970; numbers of the protocol fit 63 bits, because the relay itself gives
-- them out; flags are 0 or 1. Bytes that the relay cannot read stand in the last column, so that
-- what stands before them is read without them.

-- 'Arga': tells this file from any other program's database.
PRAGMA application_id = 0x41726761;

CREATE TABLE meta (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Random, lower-case hex: the names of this database's objects begin with it.
    instance TEXT NOT NULL
) STRICT;

INSERT INTO meta (only_row, instance) VALUES (1, lower(hex(randomblob(16))));

-- Devices and when they were seen. The latter is kept apart: it is written often, and may be lost.

CREATE TABLE devices (
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    kind TEXT NOT NULL,
    suite TEXT NOT NULL,
    encryption_key BLOB NOT NULL,
    signing_key BLOB NOT NULL,
    label BLOB,
    registered_at INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (member, device)
) STRICT, WITHOUT ROWID;

CREATE INDEX devices_by_age ON devices (member, registered_at, device);

CREATE TABLE last_seen (
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (member, device)
) STRICT, WITHOUT ROWID;

-- Graphs and their keys.

CREATE TABLE graphs (
    id INTEGER PRIMARY KEY,
    storage_key TEXT NOT NULL UNIQUE,
    -- The two members of a pair in byte order, the same twice for an own graph; null for a
    -- group's.
    low TEXT,
    high TEXT,
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    head INTEGER NOT NULL CHECK (head >= 0),
    -- Exactly the sums over the graph's records and its pending and live blobs.
    records INTEGER NOT NULL CHECK (records >= 0),
    tombstones INTEGER NOT NULL CHECK (tombstones >= 0),
    ciphertext_bytes INTEGER NOT NULL CHECK (ciphertext_bytes >= 0),
    blob_bytes INTEGER NOT NULL CHECK (blob_bytes >= 0),
    incarnation INTEGER NOT NULL CHECK (incarnation > 0),
    floor INTEGER NOT NULL CHECK (floor >= 0),
    revocation_owed INTEGER NOT NULL CHECK (revocation_owed IN (0, 1)),
    directory_owed INTEGER NOT NULL CHECK (directory_owed IN (0, 1)),
    CHECK ((low IS NULL) = (high IS NULL) AND low <= high)
) STRICT;

CREATE INDEX graphs_by_low ON graphs (low) WHERE low IS NOT NULL;
CREATE INDEX graphs_by_high ON graphs (high) WHERE high IS NOT NULL;

CREATE TABLE epochs (
    graph INTEGER NOT NULL REFERENCES graphs (id),
    epoch INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    by_member TEXT NOT NULL,
    by_device TEXT NOT NULL,
    -- A hash of the wraps it began with, by which a repeated rotate is known.
    fingerprint BLOB NOT NULL,
    -- How many devices were given a wrap when it began.
    devices INTEGER NOT NULL,
    PRIMARY KEY (graph, epoch)
) STRICT, WITHOUT ROWID;

-- A row without its wrap is blanked: the device was revoked, and was a holder.
CREATE TABLE wraps (
    id INTEGER PRIMARY KEY,
    graph INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    by_member TEXT NOT NULL,
    by_device TEXT NOT NULL,
    at INTEGER NOT NULL,
    wrap BLOB,
    UNIQUE (graph, epoch, member, device),
    FOREIGN KEY (graph, epoch) REFERENCES epochs (graph, epoch)
) STRICT;

CREATE INDEX wraps_of_device ON wraps (member, device, graph, epoch) WHERE wrap IS NOT NULL;

-- Each device that was ever given a wrap of the graph, once however many epochs there were.
CREATE TABLE holders (
    graph INTEGER NOT NULL REFERENCES graphs (id),
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    PRIMARY KEY (graph, member, device)
) STRICT, WITHOUT ROWID;

CREATE INDEX holders_by_member ON holders (member, graph);

-- Records: the newest version of each.

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    graph INTEGER NOT NULL REFERENCES graphs (id),
    record TEXT NOT NULL,
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    by_member TEXT NOT NULL,
    by_device TEXT NOT NULL,
    at INTEGER NOT NULL,
    deleted INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    bytes INTEGER NOT NULL CHECK (bytes = length(ciphertext)),
    sig BLOB,
    ciphertext BLOB NOT NULL,
    UNIQUE (graph, record)
) STRICT;

-- All that a pull asks of a row before it takes it: what is held back is passed over in here.
CREATE INDEX records_by_seq ON records (graph, seq, epoch, bytes);

-- What a push with an idempotency key was answered.
CREATE TABLE idempotency (
    id INTEGER PRIMARY KEY,
    graph INTEGER NOT NULL REFERENCES graphs (id),
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    answer BLOB NOT NULL,
    UNIQUE (graph, member, device, key)
) STRICT;

CREATE INDEX idempotency_by_age ON idempotency (at);

-- Blobs: their rows here, their bytes in whichever store is configured.

CREATE TABLE blobs (
    object TEXT PRIMARY KEY,
    graph INTEGER NOT NULL REFERENCES graphs (id),
    blob TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'live', 'forgetting')),
    size INTEGER NOT NULL CHECK (size >= 0),
    sha256 BLOB,
    policy TEXT NOT NULL,
    expires_at INTEGER,
    by_member TEXT NOT NULL,
    by_device TEXT NOT NULL,
    reserved_at INTEGER NOT NULL,
    -- Both set where it is forgetting.
    marked_at INTEGER,
    reason TEXT,
    CHECK (state <> 'live' OR sha256 IS NOT NULL),
    CHECK ((state = 'forgetting') = (marked_at IS NOT NULL AND reason IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX blobs_live ON blobs (graph, blob) WHERE state = 'live';
CREATE INDEX blobs_of_graph ON blobs (graph, state, size);
CREATE INDEX blobs_by_expiry ON blobs (expires_at) WHERE state = 'live' AND expires_at IS NOT NULL;
CREATE INDEX blobs_pending ON blobs (reserved_at) WHERE state = 'pending';
CREATE INDEX blobs_forgetting ON blobs (marked_at) WHERE state = 'forgetting';

-- Which devices have fetched a blob that is to be delivered.
CREATE TABLE blob_fetches (
    object TEXT NOT NULL REFERENCES blobs (object) ON DELETE CASCADE,
    member TEXT NOT NULL,
    device TEXT NOT NULL,
    PRIMARY KEY (object, member, device)
) STRICT, WITHOUT ROWID;

-- Bytes of blobs, where this database keeps them itself. It knows nothing of the rows above: an
-- object is put before its row is live, and removed before its row is.

CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    object TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    -- Whether all of it is here; what is not whole is not read.
    whole INTEGER NOT NULL CHECK (whole IN (0, 1))
) STRICT;

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    object INTEGER NOT NULL REFERENCES objects (id),
    n INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (object, n)
) STRICT;

-- The directory, for hosts that have none.

CREATE TABLE members (
    member TEXT PRIMARY KEY,
    active INTEGER NOT NULL CHECK (active IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE member_groups (
    group_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE group_members (
    group_id TEXT NOT NULL REFERENCES member_groups (group_id),
    member TEXT NOT NULL REFERENCES members (member),
    PRIMARY KEY (group_id, member)
) STRICT, WITHOUT ROWID;

CREATE INDEX groups_of_member ON group_members (member, group_id);
