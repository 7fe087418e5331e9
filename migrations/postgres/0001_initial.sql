-- Everything that the replicas of a cluster share.
--
-- Conventions: ids are text and compared byte for byte (`COLLATE "C"`); times are milliseconds
-- since 1970; numbers of the protocol fit 63 bits, because the relay itself gives them out. Bytes
-- that the relay cannot read stand in the last column, and lie outside the row where they are
-- long, uncompressed: they do not compress.
--
-- `records`, `wraps`, `blobs` and `blob_fetches` may be divided by hash of `graph`: each of their
-- keys has it, and no other table refers to them. `graphs`, `devices` and `holders` may not.

CREATE TABLE relay_schema (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- The newest migration that has been applied.
    version integer NOT NULL,
    -- The oldest schema that a binary may know and still serve this database.
    oldest integer NOT NULL,
    -- Random, lower-case hex: the names of this database's objects begin with it.
    instance text NOT NULL
);

INSERT INTO relay_schema (version, oldest, instance)
VALUES (0, 0, replace(gen_random_uuid()::text, '-', ''));

-- Devices and when they were seen. The latter is kept apart: it is written often, and may be lost.

CREATE TABLE devices (
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    suite text NOT NULL,
    registered_at bigint NOT NULL,
    revoked_at bigint,
    encryption_key bytea NOT NULL,
    signing_key bytea NOT NULL,
    label bytea,
    PRIMARY KEY (member, device)
);

CREATE INDEX devices_by_age ON devices (member, registered_at, device);

CREATE TABLE last_seen (
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (member, device)
) WITH (fillfactor = 70);

-- Graphs and their keys.

CREATE TABLE graphs (
    -- What the other tables call it. Given out in no order that anything rests on.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    storage_key text COLLATE "C" NOT NULL UNIQUE,
    -- The two members of a pair in byte order, the same twice for an own graph; null for a
    -- group's.
    low text COLLATE "C",
    high text COLLATE "C",
    epoch bigint NOT NULL CHECK (epoch >= 0),
    head bigint NOT NULL CHECK (head >= 0),
    -- Exactly the sums over the graph's records and its pending and live blobs.
    records bigint NOT NULL CHECK (records >= 0),
    tombstones bigint NOT NULL CHECK (tombstones >= 0),
    ciphertext_bytes bigint NOT NULL CHECK (ciphertext_bytes >= 0),
    blob_bytes bigint NOT NULL CHECK (blob_bytes >= 0),
    incarnation bigint NOT NULL CHECK (incarnation > 0),
    floor bigint NOT NULL CHECK (floor >= 0),
    revocation_owed boolean NOT NULL,
    directory_owed boolean NOT NULL,
    CHECK ((low IS NULL) = (high IS NULL) AND low <= high)
    -- Room for the row's next versions beside it: it changes with every push, and no index does.
) WITH (fillfactor = 50);

CREATE INDEX graphs_by_low ON graphs (low, storage_key) WHERE low IS NOT NULL;
CREATE INDEX graphs_by_high ON graphs (high, storage_key) WHERE high IS NOT NULL;

CREATE TABLE epochs (
    graph bigint NOT NULL,
    epoch bigint NOT NULL,
    first_seq bigint NOT NULL,
    by_member text COLLATE "C" NOT NULL,
    by_device text COLLATE "C" NOT NULL,
    -- How many devices were given a wrap when it began.
    devices bigint NOT NULL,
    -- A hash of the wraps it began with, by which a repeated rotate is known.
    fingerprint bytea NOT NULL,
    PRIMARY KEY (graph, epoch)
);

-- A row without its wrap is blanked: the device was revoked, and was a holder.
CREATE TABLE wraps (
    graph bigint NOT NULL,
    epoch bigint NOT NULL,
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    by_member text COLLATE "C" NOT NULL,
    by_device text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    wrap bytea,
    PRIMARY KEY (graph, epoch, member, device)
);

ALTER TABLE wraps ALTER COLUMN wrap SET STORAGE EXTERNAL;

CREATE INDEX wraps_of_device ON wraps (graph, member, device, epoch) WHERE wrap IS NOT NULL;

-- Each device that was ever given a wrap of the graph, once however many epochs there were.
CREATE TABLE holders (
    graph bigint NOT NULL,
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    PRIMARY KEY (graph, member, device)
);

CREATE INDEX holders_by_device ON holders (member, device, graph);

-- Records: the newest version of each.

CREATE TABLE records (
    graph bigint NOT NULL,
    record text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    by_member text COLLATE "C" NOT NULL,
    by_device text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    deleted boolean NOT NULL,
    bytes bigint NOT NULL CHECK (bytes = octet_length(ciphertext)),
    sig bytea,
    ciphertext bytea NOT NULL,
    PRIMARY KEY (graph, record)
);

ALTER TABLE records ALTER COLUMN ciphertext SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX records_by_seq ON records (graph, seq);

-- What a push with an idempotency key was answered. A partition is a slot of half a day, four of
-- them in a ring: a slot whose time has passed is emptied in one step before its turn comes again.
-- A key may stand in several slots; the newest counts.
CREATE TABLE idempotency (
    slot smallint NOT NULL,
    graph bigint NOT NULL,
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    answer bytea NOT NULL,
    PRIMARY KEY (graph, member, device, key, slot)
) PARTITION BY LIST (slot);

CREATE TABLE idempotency_0 PARTITION OF idempotency FOR VALUES IN (0);
CREATE TABLE idempotency_1 PARTITION OF idempotency FOR VALUES IN (1);
CREATE TABLE idempotency_2 PARTITION OF idempotency FOR VALUES IN (2);
CREATE TABLE idempotency_3 PARTITION OF idempotency FOR VALUES IN (3);

CREATE INDEX idempotency_by_age ON idempotency (at);

-- Blobs: their rows here, their bytes in whichever store is configured.

CREATE TABLE blobs (
    graph bigint NOT NULL,
    object text COLLATE "C" NOT NULL,
    blob text COLLATE "C" NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'live', 'forgetting')),
    size bigint NOT NULL CHECK (size >= 0),
    policy text NOT NULL,
    expires_at bigint,
    by_member text COLLATE "C" NOT NULL,
    by_device text COLLATE "C" NOT NULL,
    reserved_at bigint NOT NULL,
    -- Both set where it is forgetting.
    marked_at bigint,
    reason text,
    sha256 bytea,
    PRIMARY KEY (graph, object),
    CHECK (state <> 'live' OR sha256 IS NOT NULL),
    CHECK ((state = 'forgetting') = (marked_at IS NOT NULL AND reason IS NOT NULL))
);

CREATE UNIQUE INDEX blobs_live ON blobs (graph, blob) WHERE state = 'live';
CREATE INDEX blobs_by_expiry ON blobs (expires_at) WHERE state = 'live' AND expires_at IS NOT NULL;
CREATE INDEX blobs_pending ON blobs (reserved_at) WHERE state = 'pending';
CREATE INDEX blobs_forgetting ON blobs (marked_at, object) WHERE state = 'forgetting';

-- Which devices have fetched a blob that is to be delivered.
CREATE TABLE blob_fetches (
    graph bigint NOT NULL,
    object text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    PRIMARY KEY (graph, object, member, device)
);

-- Bytes of blobs, where this database keeps them itself. It knows nothing of the rows above: an
-- object is put before its row is live, and removed before its row is.

CREATE TABLE objects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    object text COLLATE "C" NOT NULL UNIQUE,
    size bigint NOT NULL,
    -- Whether all of it is here; what is not whole is not read.
    whole boolean NOT NULL
);

CREATE TABLE chunks (
    object bigint NOT NULL REFERENCES objects (id),
    n bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (object, n)
);

ALTER TABLE chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- The directory, for hosts that have none.

CREATE TABLE members (
    member text COLLATE "C" PRIMARY KEY,
    active boolean NOT NULL
);

CREATE TABLE member_groups (
    group_id text COLLATE "C" PRIMARY KEY
);

CREATE TABLE group_members (
    group_id text COLLATE "C" NOT NULL REFERENCES member_groups (group_id),
    member text COLLATE "C" NOT NULL REFERENCES members (member),
    PRIMARY KEY (group_id, member)
);

CREATE INDEX groups_of_member ON group_members (member, group_id);
