//! The sweep in a database that holds much and has little that is due: whatever plans the server
//! makes, no table is read from end to end.

use std::time::Duration;

use argala_postgres::lead;
use argala_testkit::{EPOCH, eventually};
use argala_wire::Timestamp;

use crate::{
    database::options,
    scene::{Scene, object},
};

/// Rows of each kind.
const ROWS: u64 = 20_000;

/// Blobs of all policies with their fetches and objects, tombstones, keys, graphs; nothing is due
/// before the year 2100.
fn fill() -> String {
    let later = Timestamp::from_millis(4_102_444_800_000);
    format!(
        "INSERT INTO graphs (storage_key, epoch, head, records, tombstones, ciphertext_bytes,
                             blob_bytes, incarnation, floor, revocation_owed, directory_owed, ask_at)
         SELECT 'g:group-' || n, 1, 0, 0, 0, 0, 0, 1, 0, false, false, {later}
         FROM generate_series(1, {ROWS}) n;
         INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member,
                            by_device, reserved_at, sha256, look_at)
         SELECT 1 + n % 1000, instance || '/' || md5(n::text), 'a-blob-of-number-' || n,
                CASE WHEN n % 5 = 0 THEN 'pending' ELSE 'live' END, 0, 'deliver', {later},
                'sam', 'd0', {later}, '', {later}
         FROM relay_schema, generate_series(1, {ROWS}) n;
         INSERT INTO blob_fetches (graph, object, member, device)
         SELECT graph, object, 'alex', 'd0' FROM blobs;
         INSERT INTO objects (object, size, whole) SELECT object, 0, true FROM blobs;
         INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes,
                              ciphertext)
         SELECT 1 + n % 1000, 'r' || n, n, 1, 'sam', 'd0', {later}, true, 0, ''
         FROM generate_series(1, {ROWS}) n;
         INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
         SELECT n % 4, 1 + n % 1000, 'sam', 'd0', 'k' || n, {later}, '', ''
         FROM generate_series(1, {ROWS}) n;
         ANALYZE;",
        later = later.as_millis()
    )
}

/// One of each that is due. `round` tells apart those of one round from those of others.
fn make_due(round: u64) -> String {
    format!(
        "INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member,
                            by_device, reserved_at, sha256, look_at)
         SELECT 1, instance || '/' || md5(state || {round}), 'a-blob-that-is-due-' || state || {round},
                state, 0, 'deliver', 1, 'sam', 'd0', 1, '', CASE WHEN state = 'live' THEN 1 END
         FROM relay_schema, (VALUES ('live'), ('pending')) v (state);
         INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes,
                              ciphertext)
         VALUES (1, 'due {round}', 1000000 + {round}, 1, 'sam', 'd0', 1, true, 0, '');
         UPDATE graphs SET tombstones = tombstones + 1 WHERE id = 1;
         INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
         VALUES (1, 1, 'sam', 'd0', 'due {round}', 1, '', '');
         UPDATE graphs SET ask_at = 0 WHERE id = 2 + {round};"
    )
}

/// How many rows were read by reading tables from end to end, by sessions that have ended.
const READ: &str = "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables
                    WHERE relname NOT LIKE 'relay_schema'";

/// Often enough that the server has settled for a plan of each statement.
#[tokio::test]
async fn a_sweep_reads_what_is_due_and_no_more() {
    const ROUNDS: u64 = 12;
    let scene = Scene::with(|options| options.connections = 1).await;
    let beside = scene.beside().await;
    beside.run(&fill()).await;
    let fillers = beside.text("SELECT pg_backend_pid()").await;
    // By sessions that end, so that what they have read is told.
    drop(beside);
    let watch = scene.beside().await;
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {fillers}");
    eventually("the session ends", || async {
        (watch.text(&gone).await == "0").then_some(())
    })
    .await;
    for round in 0..ROUNDS {
        watch.run(&make_due(round)).await;
    }
    watch.run("SELECT pg_stat_force_next_flush()").await;
    let before: u64 = watch.text(READ).await.parse().unwrap();

    // By the connection that leads, as in a cluster.
    let leader = lead(&options(scene.database.url()), Duration::from_secs(60)).await;
    let leader = leader.unwrap().expect("nobody else does");
    let db = leader.store();
    let (now, again) = (EPOCH, Some(EPOCH.saturating_add(Duration::from_secs(60))));
    for round in 0..ROUNDS {
        assert_eq!(db.deliveries(now, again, 1).await.unwrap().len(), 0);
        let doomed = db.doom_blobs(now, now, now, 2).await.unwrap();
        assert_eq!(doomed.len(), 2);
        for blob in doomed {
            db.put_off(&blob.graph, &blob.object, now).await.unwrap();
            assert!(db.drop_blob(&blob.graph, &blob.object).await.unwrap());
        }
        assert_eq!(db.drop_tombstones(now, 1).await.unwrap(), 1);
        assert_eq!(db.drop_idempotency(now, 1).await.unwrap(), 1);
        let groups = db.groups_to_ask(now, again, 1).await.unwrap();
        assert_eq!(groups.len(), 1);
        db.note_groups(&groups).await.unwrap();
        assert!(db.erasures(9).await.unwrap().is_empty());
        let objects: Vec<_> = (0..100)
            .map(|at| object(&scene.db, 1_000 * round + at))
            .collect();
        assert_eq!(db.unknown_objects(&objects).await.unwrap(), objects);
    }
    drop(db);
    leader.close().await;
    scene.db.close().await;
    drop(scene.stock.db);
    let after = eventually("the sweep's session has told", || async {
        let sessions = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let ended = watch.text(sessions).await == "0";
        let after: u64 = watch.text(READ).await.parse().unwrap();
        ended.then_some(after)
    })
    .await;
    let read = after - before;
    assert!(read < ROWS / 4, "{read} rows were read from end to end");
}
