-- A million records of 10,000 graphs, and all else in proportion, made by the server itself. The same
-- each time, since chance would make other plans look as cheap. What a test has stored already lies
-- below the numbers that are used here.
--
-- Half of the graphs are groups', a quarter members' own, a quarter pairs'. Half of the records lie
-- in a hundredth of the graphs.

-- Nobody else counts the rows meanwhile.
DO $$
DECLARE it regclass;
BEGIN
    FOR it IN
        SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', it);
    END LOOP;
END
$$;

INSERT INTO devices (member, device, kind, suite, registered_at, revoked_at, encryption_key,
                     signing_key)
SELECT 'm' || m, 'd' || d, 'app', 'v1', m * 10 + d, CASE WHEN (m + d) % 10 = 0 THEN m * 20 END,
       sha256(m::text::bytea), sha256(d::text::bytea)
FROM generate_series(1, 5000) m CROSS JOIN generate_series(0, 2) d;

INSERT INTO last_seen (member, device, at)
SELECT member, device, registered_at FROM devices WHERE member LIKE 'm%';

INSERT INTO graphs (id, storage_key, low, high, epoch, head, records, tombstones, ciphertext_bytes,
                    blob_bytes, incarnation, floor, revocation_owed, directory_owed, ask_at)
OVERRIDING SYSTEM VALUE
SELECT 1000 + n, (CASE WHEN n % 2 = 0 THEN 'g:' ELSE 'p:' END || n) COLLATE "C",
       CASE WHEN n % 2 = 1 THEN least(a, b) END, CASE WHEN n % 2 = 1 THEN greatest(a, b) END,
       3, 1000000, 100, 2, 3200, 100, 1, 0, n % 100 = 0, n % 1000 = 0, n * 1000
FROM generate_series(1, 10000) n
CROSS JOIN LATERAL (
    SELECT ('m' || 1 + n / 2) COLLATE "C" AS a,
           ('m' || 1 + CASE WHEN n % 4 = 1 THEN n / 2 ELSE n / 3 END) COLLATE "C" AS b
) pair;

INSERT INTO epochs (graph, epoch, first_seq, by_member, by_device, devices, fingerprint)
SELECT 1000 + n, e, e * 100, 'm' || 1 + n / 2, 'd0', 10, sha256(n::text::bytea)
FROM generate_series(1, 10000) n CROSS JOIN generate_series(1, 3) e;

-- Ten devices of five members hold each.
INSERT INTO wraps (graph, epoch, member, device, by_member, by_device, at, wrap)
SELECT 1000 + n, e, 'm' || 1 + (n * 7 + k / 2) % 5000, 'd' || k % 2, 'm' || 1 + n / 2, 'd0', e * 100,
       CASE WHEN (n + k) % 20 > 0 THEN sha256(n::text::bytea) END
FROM generate_series(1, 10000) n CROSS JOIN generate_series(1, 3) e CROSS JOIN generate_series(0, 9) k;

INSERT INTO holders (graph, member, device)
SELECT graph, member, device FROM wraps WHERE graph > 1000 AND epoch = 3;

INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes, ciphertext)
SELECT 1000 + CASE WHEN n % 2 = 0 THEN 1 + n / 2 % 10000 ELSE 1 + n / 2 % 100 END,
       'r' || n, n, 1 + n % 3, 'm' || 1 + n % 5000, 'd0', n, n % 50 = 0, 32, sha256(n::text::bytea)
FROM generate_series(1, 1000000) n;

INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
SELECT n % 4, 1000 + 1 + n % 10000, 'm' || 1 + n % 5000, 'd0', 'k' || n, n, sha256(n::text::bytea),
       sha256(n::text::bytea)
FROM generate_series(1, 50000) n;

-- Ten to a graph; of a hundred one is pending and one is forgetting.
INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member, by_device,
                   reserved_at, marked_at, reason, sha256, look_at)
SELECT 1000 + 1 + n % 10000, 'o' || n, 'b' || n, state, 10, CASE n % 4 WHEN 0 THEN 'deliver'
       WHEN 1 THEN 'expire' ELSE 'keep' END, CASE WHEN n % 2 = 0 THEN n * 1000 END,
       'm' || 1 + n % 5000, 'd0', n, CASE WHEN state = 'forgetting' THEN n END,
       CASE WHEN state = 'forgetting' THEN 'expired' END, sha256(n::text::bytea),
       CASE WHEN n % 8 = 0 THEN n END
FROM generate_series(1, 100000) n
CROSS JOIN LATERAL (
    SELECT CASE n % 100 WHEN 1 THEN 'pending' WHEN 2 THEN 'forgetting' ELSE 'live' END AS state
) s;

INSERT INTO blob_fetches (graph, object, member, device)
SELECT graph, object, by_member, 'd' || d
FROM blobs CROSS JOIN generate_series(0, 1) d WHERE policy = 'deliver' AND graph > 1000;

INSERT INTO objects (id, object, size, whole) OVERRIDING SYSTEM VALUE
SELECT 1000 + n, 'o' || n, 96, true FROM generate_series(1, 20000) n;

INSERT INTO chunks (object, n, bytes)
SELECT 1000 + o, n, sha256(o::text::bytea)
FROM generate_series(1, 20000) o CROSS JOIN generate_series(0, 2) n;

INSERT INTO members (member, active) SELECT 'm' || n, n % 50 > 0 FROM generate_series(1, 5000) n;

INSERT INTO member_groups (group_id) SELECT n * 2 FROM generate_series(1, 5000) n;

INSERT INTO group_members (group_id, member)
SELECT n * 2, 'm' || 1 + (n * 14 + k) % 5000
FROM generate_series(1, 5000) n CROSS JOIN generate_series(0, 4) k;

INSERT INTO erasures (graph, storage_key, reason, at)
SELECT 100000 + n, 'g:erased' || n, 'requested', n FROM generate_series(1, 2000) n;
