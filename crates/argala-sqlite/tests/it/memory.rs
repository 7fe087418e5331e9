//! An object passes through the database in constant memory, however large it is.
//!
//! What is measured is the peak of a process that does nothing else: this test binary again.

use std::{process::Command, sync::Arc};

use argala_core::ports::BlobStore;
use argala_sqlite::{Options, Sqlite};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::scene::object;

/// Names the database, for the process that is measured.
const CHILD: &str = "ARGALA_TEST_PASS_AN_OBJECT_THROUGH";
const MIB: usize = 1024 * 1024;

/// The most memory that this process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

async fn pass_through(db: &Arc<Sqlite>, number: u64, size: usize) {
    let key = object(db, number);
    let body = stream::iter((0..size / 65_536).map(|_| Ok(Bytes::from(vec![1; 65_536]))));
    db.put(&key, size as u64, Box::pin(body)).await.unwrap();
    let mut read = db.get(&key, None).await.unwrap().unwrap();
    let mut got = 0;
    while let Some(piece) = read.next().await {
        got += piece.unwrap().len();
    }
    assert_eq!(got, size);
    db.delete(&key).await.unwrap();
}

/// Not a test by itself: what the measured process runs.
#[tokio::test]
async fn pass_an_object_through() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let db = Arc::new(Sqlite::open(path, &Options::default()).unwrap());
    pass_through(&db, 1, MIB).await;
    let before = peak();
    pass_through(&db, 2, 100 * MIB).await;
    println!("\ngrown by {}\n", peak() - before);
}

#[test]
fn the_peak_does_not_grow_with_the_object() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["memory::pass_an_object_through", "--exact", "--nocapture"])
        .env(CHILD, folder.path().join("relay.db"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    let grown = told
        .lines()
        .find_map(|line| line.strip_prefix("grown by "))
        .unwrap();
    println!("100 MiB in and out: {grown} bytes more");
    // The connections' page caches are what fills up: 16 MiB and 8 MiB for each reader.
    assert!(grown.parse::<usize>().unwrap() < 60 * MIB, "{grown}");
}
