//! Sweepers over a real Postgres: one works, whatever is done to the others.

mod leaks;
mod stage;
mod uploads;

use std::sync::Arc;

use argala_core::ports::{
    BlobStore, Store,
    store::{CommitBlob, ReserveBlob},
};
use argala_postgres::{Options, Postgres, migrate};
use argala_testkit::{
    EPOCH, TestDevice, blob_id, group, member,
    servers::{Database, PrivatePostgres, Session, postgres_from},
};
use argala_wire::{StorageKey, Timestamp, blobs::BlobPolicy};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::process::{Running, SOON, pause, run};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

async fn migrated() -> Database {
    postgres_from("migrated", |url| async move {
        migrate(&Options::new(url)).await.unwrap();
    })
    .await
}

fn acme() -> StorageKey {
    StorageKey::group(&group("acme"))
}

/// A device of sam's, who is of the group, and the group's graph.
async fn keyed(url: &str) -> (Arc<Postgres>, TestDevice) {
    use argala_core::{ports::DirectoryTables as _, rules::rotate::fingerprint};
    let db = Arc::new(Postgres::open(&Options::new(url)).await.unwrap());
    db.add_member(&member("sam")).await.unwrap();
    db.create_group(&group("acme")).await.unwrap();
    db.join_group(&group("acme"), &member("sam")).await.unwrap();
    let device = TestDevice::new("sam", "laptop");
    db.register(device.register(EPOCH)).await.unwrap();
    let wraps = vec![device.rotate_wrap("key")];
    db.rotate(argala_core::ports::store::Rotate {
        key: acme(),
        by: device.to_ref(),
        members: vec![member("sam")],
        epoch: 1,
        fingerprint: fingerprint(&wraps),
        wraps,
        incarnation: 7,
        now: EPOCH,
    })
    .await
    .unwrap();
    (db, device)
}

/// So many blobs that have expired, each with its object.
async fn expired(db: &Arc<Postgres>, by: &TestDevice, from: u64, count: u64) {
    for number in from..from + count {
        let mut random = [0; 16];
        random[8..].copy_from_slice(&number.to_be_bytes());
        let object = argala_core::ports::ObjectKey::new(db.instance(), random);
        let reserve = ReserveBlob {
            key: acme(),
            id: blob_id(&format!("a-blob-of-number-{number}")),
            by: by.to_ref(),
            object: object.clone(),
            size: 7,
            policy: BlobPolicy::Expire,
            expires_at: Some(Timestamp::from_millis(1)),
            now: EPOCH,
            max_bytes_per_graph: u64::MAX,
        };
        db.reserve_blob(reserve).await.unwrap();
        let body = Box::pin(futures_util::stream::iter([Ok(Bytes::from_static(
            b"content",
        ))]));
        db.put(&object, 7, body).await.unwrap();
        let commit = CommitBlob {
            key: acme(),
            object,
            by: by.to_ref(),
            sha256: [0; 32],
            now: Timestamp::from_millis(0),
        };
        db.commit_blob(commit).await.unwrap();
    }
}

fn count(runtime: &Runtime, session: &Session, question: &str) -> u64 {
    runtime.block_on(session.text(question)).parse().unwrap()
}

const ROWS: &str = "SELECT count(*) FROM blobs";
const OBJECTS: &str = "SELECT count(*) FROM objects";
const WRONG: &str = "SELECT count(*) FROM graphs g WHERE blob_bytes <> (
    SELECT coalesce(sum(size), 0) FROM blobs b
    WHERE b.graph = g.id AND b.state IN ('pending', 'live'))";

/// Waits until no row and no object is left, and the counters are exact.
fn wait_until_all_is_right(runtime: &Runtime, session: &Session) {
    let until = std::time::Duration::from_millis(20);
    let mut looks = SOON.as_millis() / until.as_millis();
    while [ROWS, OBJECTS, WRONG]
        .iter()
        .any(|question| count(runtime, session, question) != 0)
    {
        looks -= 1;
        assert!(looks > 0, "something is left");
        pause();
    }
}

/// The same, where whoever marked blobs may have died: they are left to it for a minute, and a test
/// has no minute.
fn wait_until_nothing_is_left_to_the_dead(runtime: &Runtime, session: &Session) {
    let long_ago = "UPDATE blobs SET marked_at = 0 WHERE state = 'forgetting'";
    let mut looks = SOON.as_millis() / 20;
    while count(runtime, session, ROWS) != 0 {
        looks -= 1;
        assert!(looks > 0, "something is left");
        // Again and again: what it did last may come to be after it is gone.
        runtime.block_on(session.run(long_ago));
        pause();
    }
    wait_until_all_is_right(runtime, session);
}

#[test]
fn one_pass_forgets_what_is_due_and_a_dry_run_nothing() {
    let runtime = runtime();
    let database = runtime.block_on(migrated());
    let url = database.url();
    let (db, sam) = runtime.block_on(keyed(&url));
    runtime.block_on(expired(&db, &sam, 0, 3));
    let session = runtime.block_on(Session::open(&url));
    let json = |args: &[&str]| -> serde_json::Value {
        let output = run(&url, &[args, &["--output", "json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let told = json(&["once", "--dry-run"]);
    assert_eq!(told["due"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&told["due"][0]["why"], &told["due"][0]["graph"]),
        (&"expired".into(), &"g:acme".into())
    );
    let table = run(&url, &["once", "--dry-run"]).stdout;
    let table = String::from_utf8(table).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    assert_eq!(count(&runtime, &session, ROWS), 3);
    let told = json(&["once"]);
    assert_eq!(told["forgotten"]["expired"], 3);
    wait_until_all_is_right(&runtime, &session);
    assert_eq!(json(&["once"])["forgotten"], serde_json::json!({}));
}

#[test]
fn of_two_sweepers_one_works_and_the_other_takes_over() {
    let runtime = runtime();
    let database = runtime.block_on(migrated());
    let url = database.url();
    let (db, sam) = runtime.block_on(keyed(&url));
    let session = runtime.block_on(Session::open(&url));
    let mut first = Running::start(&url);
    first.wait_until_it_leads();
    let mut second = Running::start(&url);
    second.wait_for_log("another sweeper leads");
    assert!(first.leads() && !second.leads());
    assert_eq!(second.ask("/healthz").0, 200);
    assert_eq!(second.ask("/version").1["name"], "sweeper");
    let output = run(&url, &["once"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("another sweeper is at work")
    );
    runtime.block_on(expired(&db, &sam, 0, 2));
    wait_until_all_is_right(&runtime, &session);

    // Killed: the server sees its connection end.
    first.signal("KILL");
    first.wait();
    let took = second.wait_until_it_leads();
    assert!(took.as_secs() < 10, "{took:?}");
    runtime.block_on(expired(&db, &sam, 10, 2));
    wait_until_all_is_right(&runtime, &session);
    second.signal("TERM");
    let (status, log) = second.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_leader_that_was_stopped_does_nothing_when_it_wakes() {
    let runtime = runtime();
    let database = runtime.block_on(migrated());
    let url = database.url();
    let (db, sam) = runtime.block_on(keyed(&url));
    let session = runtime.block_on(Session::open(&url));
    let mut first = Running::start(&url);
    first.wait_until_it_leads();
    let second = Running::start(&url);
    first.signal("STOP");
    second.wait_until_it_leads();
    // From here on whoever marks a blob is written down by its session.
    runtime.block_on(session.run(
        "CREATE TABLE marks (pid integer);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO marks VALUES (pg_backend_pid()); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER UPDATE ON blobs FOR EACH ROW
         WHEN (NEW.state = 'forgetting') EXECUTE FUNCTION note();",
    ));
    first.signal("CONT");
    first.wait_for_log("leads no longer");
    for from in 0..5 {
        runtime.block_on(expired(&db, &sam, from * 10, 4));
        wait_until_all_is_right(&runtime, &session);
    }
    let others = "SELECT count(*) FROM marks WHERE pid NOT IN (
        SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (
            SELECT oid FROM pg_database WHERE datname = current_database()))";
    assert_eq!(count(&runtime, &session, "SELECT count(*) FROM marks"), 20);
    assert_eq!(
        count(&runtime, &session, others),
        0,
        "somebody without the lock"
    );
    assert!(second.leads() && !first.leads());
}

#[test]
fn a_sweeper_that_is_killed_in_mid_pass_leaves_nothing_for_ever() {
    let runtime = runtime();
    let database = runtime.block_on(migrated());
    let url = database.url();
    let (db, sam) = runtime.block_on(keyed(&url));
    let session = runtime.block_on(Session::open(&url));
    for round in 0..4 {
        runtime.block_on(expired(&db, &sam, round * 1_000, 120));
        let mut killed = Running::start(&url);
        // In the middle: some are gone, some are not.
        while count(&runtime, &session, ROWS) > 110 {
            pause();
        }
        killed.signal("KILL");
        killed.wait();
        let mut next = Running::start(&url);
        wait_until_nothing_is_left_to_the_dead(&runtime, &session);
        next.signal("TERM");
        assert_eq!(next.wait().0.code(), Some(0));
    }
}

#[test]
fn a_server_that_is_killed_under_a_sweeper_is_swept_when_it_is_back() {
    let runtime = runtime();
    let server = runtime.block_on(PrivatePostgres::start());
    let url = server.url();
    runtime.block_on(migrate(&Options::new(&url))).unwrap();
    let (db, sam) = runtime.block_on(keyed(&url));
    runtime.block_on(expired(&db, &sam, 0, 150));
    let session = runtime.block_on(Session::open(&url));
    let running = Running::start(&url);
    while count(&runtime, &session, ROWS) > 140 {
        pause();
    }
    runtime.block_on(server.kill());
    runtime.block_on(server.start_again());
    let session = runtime.block_on(Session::open(&url));
    wait_until_nothing_is_left_to_the_dead(&runtime, &session);
    running.wait_until_it_leads();
}
