//! A server that takes another's place without its last transactions gives their numbers out again.
//! Behind a pooler nobody sees a connection being made.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use argala_core::ports::Store;
use argala_postgres::{Options, Postgres, Statements, Timeouts, migrate};
use argala_testkit::{
    EPOCH, TestDevice, eventually,
    servers::{PrivatePostgres, Session},
};
use argala_wire::records::{PushReason, PushResult};

use crate::{
    database::options,
    scene::{graph, push, rotate},
};

/// Puts a copy of a stopped server's data in another place, or back.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// What the last push of a replica is told where the graph's row has the version that the replica
/// remembers, and was made so by `sql`. Behind a pooler it tries what it remembers; otherwise it makes a
/// connection for it, and does not.
async fn told_after(sql: &str, pooled: bool) -> PushResult {
    // Nobody else takes a number.
    let server = PrivatePostgres::start_with(&[("autovacuum", "off")]).await;
    migrate(&Options::new(server.url())).await.unwrap();
    let url = if pooled {
        server.start_bouncer().await
    } else {
        server.url()
    };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&sent);
    let options = Options {
        statements: Statements::Unnamed,
        timeouts: Timeouts::Transaction,
        connections: 1,
        probe: Some(Arc::new(move |sql| {
            told.lock().unwrap().push(sql.to_owned());
        })),
        ..options(url.clone())
    };
    let db = Postgres::open(&options).await.unwrap();
    let device = TestDevice::new("sam", "d0");
    let key = graph("acme");
    db.register(device.register(EPOCH)).await.unwrap();
    let request = rotate(&key, 1, std::slice::from_ref(&device));
    db.rotate(request).await.unwrap();

    let data = server.data();
    let before = PathBuf::from(format!("{}-before", data.display()));
    server.stop().await;
    copy(&data, &before);
    again(&server, &url).await;
    let push = async |id: &str| {
        let record = device.record(&key, id, 1, b"content");
        let outcome = db.push(push(&key, &device, vec![record])).await.unwrap();
        outcome.answer.results.into_iter().next().unwrap()
    };
    push("first").await;
    push("second").await;
    let version = "SELECT xmin FROM graphs";
    let remembered = Session::open(&server.url()).await.text(version).await;

    server.stop().await;
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&before, &data).unwrap();
    again(&server, &url).await;
    let beside = Session::open(&server.url()).await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
    while beside.text(next).await != remembered {
        beside.run("SELECT pg_current_xact_id()").await;
    }
    beside.run(sql).await;
    assert_eq!(beside.text(version).await, remembered);

    sent.lock().unwrap().clear();
    let told = push("third").await;
    let fast = sent.lock().unwrap();
    let fast = fast.iter().filter(|sql| sql.contains("AS version"));
    assert_eq!(fast.count(), usize::from(pooled));
    told
}

/// Starts the server, and waits until it serves at `url`, a pooler's perhaps.
async fn again(server: &PrivatePostgres, url: &str) {
    server.start_again().await;
    eventually("it serves", || async {
        let session = Session::try_open(url).await.ok()?;
        session.try_run("SELECT 1").await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_given_out_again_is_told_by_the_head() {
    let told = told_after("UPDATE graphs SET head = 7", true).await;
    assert!(
        matches!(told, PushResult::Accepted { seq: 8, .. }),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_given_out_again_is_told_by_the_epoch() {
    let told = told_after("UPDATE graphs SET head = 2, epoch = 2", true).await;
    let PushResult::Rejected { reason, .. } = &told else {
        panic!("{told:?}");
    };
    assert!(
        matches!(reason, PushReason::StaleEpoch { epoch: 2 }),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_remembered_before_a_connection_was_made_is_not_tried() {
    let told = told_after("UPDATE graphs SET head = 2", false).await;
    assert!(
        matches!(told, PushResult::Accepted { seq: 3, .. }),
        "{told:?}"
    );
}
