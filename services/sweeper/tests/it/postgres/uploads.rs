//! A relay is killed within an upload; a pass of the sweep puts all right.

use std::io::Write as _;

use serde_json::json;

use super::{
    ROWS,
    stage::{Place, Stage},
};

const BLOB: &str = "a-blob-of-which-half-came";
const PENDING: &str = "SELECT count(*) FROM blobs WHERE state = 'pending'";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";
/// As `sweep.grace` is by default, and a millisecond.
const LONGER_THAN_THE_GRACE: u64 = 60 * 60 * 1_000 + 1;

fn noise() -> Vec<u8> {
    (0..6_000_000_usize)
        .map(|at| (at * 7 + at / 251) as u8)
        .collect()
}

/// Holds that what a killed relay has left is left alone within the grace, and gone after it; and
/// that the upload may be repeated under its id.
fn is_put_right(stage: &Stage, bytes: &[u8]) {
    let size = bytes.len() as u64;
    assert_eq!((stage.count(PENDING), stage.charged()), (1, size));
    let before = (stage.whole(), stage.count(ROWS));
    assert_eq!(
        stage.sweep(&[])["forgotten"],
        json!({}),
        "it may be under way"
    );
    assert_eq!((stage.whole(), stage.count(ROWS)), before);

    stage.run(&format!(
        "UPDATE blobs SET reserved_at = reserved_at - {LONGER_THAN_THE_GRACE}"
    ));
    assert_eq!(stage.sweep(&[])["forgotten"], json!({"orphaned": 1}));
    assert_eq!(
        (stage.count(ROWS), stage.remains(), stage.charged()),
        (0, 0, 0)
    );

    let relay = stage.relay();
    assert_eq!(relay.get(BLOB).0, 404);
    assert_eq!(relay.put(BLOB, bytes), 201);
    assert!(relay.get(BLOB) == (200, bytes.to_vec()), "all of it");
    assert_eq!((stage.whole(), stage.charged()), (1, size));
    assert_eq!(stage.sweep(&[])["forgotten"], json!({}));
    assert_eq!(relay.get(BLOB).0, 200);
}

/// Half of the body has come.
fn killed_in_mid_body(place: Place) {
    let (stage, bytes) = (Stage::new(place), noise());
    let relay = stage.relay();
    let mut stream = relay.begin_put(BLOB, bytes.len());
    stream.write_all(&bytes[..bytes.len() / 2]).unwrap();
    stage.wait_for(1, |stage| stage.count(PENDING));
    if place == Place::Database {
        // Some of the object is there, and not all of it.
        stage.wait_for(8, |stage| stage.count("SELECT count(*) FROM chunks"));
    }
    assert_eq!(stage.whole(), 0);
    relay.kill();
    is_put_right(&stage, &bytes);
}

/// The object is there, and its row is not live yet.
fn killed_before_the_commit(place: Place) {
    let (stage, bytes) = (Stage::new(place), noise());
    let relay = stage.relay();
    let (some, rest) = bytes.split_at(1_000_000);
    let mut stream = relay.begin_put(BLOB, bytes.len());
    stream.write_all(some).unwrap();
    stage.wait_for(1, |stage| stage.count(PENDING));
    // Whoever makes the row live needs this lock.
    stage.run("BEGIN; SELECT 1 FROM graphs WHERE storage_key = 'g:acme' FOR UPDATE");
    stream.write_all(rest).unwrap();
    stage.wait_for(1, Stage::whole);
    stage.wait_for(1, |stage| {
        // Within a transaction the server's activity is what it was at the first look.
        stage.run("SELECT pg_stat_clear_snapshot()");
        stage.count(WAITING)
    });
    relay.kill();
    stage.run("ROLLBACK");
    assert_eq!(stage.whole(), 1);
    is_put_right(&stage, &bytes);
}

#[test]
fn a_relay_that_is_killed_in_mid_body_leaves_nothing_in_the_database() {
    killed_in_mid_body(Place::Database);
}

#[test]
fn a_relay_that_is_killed_in_mid_body_leaves_nothing_in_the_bucket() {
    killed_in_mid_body(Place::Bucket);
}

#[test]
fn an_object_in_the_database_whose_row_never_lived_goes() {
    killed_before_the_commit(Place::Database);
}

#[test]
fn an_object_in_the_bucket_whose_row_never_lived_goes() {
    killed_before_the_commit(Place::Bucket);
}
