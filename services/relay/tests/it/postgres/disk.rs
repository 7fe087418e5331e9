//! The server's disk is full.

use std::{thread, time::Duration};

use argala_testkit::servers::{PrivatePostgres, Session};
use tokio::runtime::Runtime;

use super::{keyed, runtime, succeed};
use crate::load::{GENEROUS, Load};

/// How long a push may still be refused once there is room again.
const SECONDS: Duration = Duration::from_secs(10);

/// Enough for a new database and the relay's tables, and little more.
const MEBIBYTES: u32 = 24;

/// A server with a database named `relay` on a small disk. The log of changes is not there: a
/// server that cannot write that stops altogether, which is another test.
fn small(runtime: &Runtime) -> PrivatePostgres {
    runtime.block_on(async {
        let server = PrivatePostgres::start_with_small_disk(MEBIBYTES).await;
        let session = Session::open(&server.url()).await;
        let folder = server.small_disk();
        let tablespace = format!("create tablespace small location '{}'", folder.display());
        session.run(&tablespace).await;
        session.run("create database relay tablespace small").await;
        server
    })
}

/// Fills the disk to the last page.
async fn fill(session: &Session) {
    session
        .run("create table junk (filling text); alter table junk alter filling set storage plain")
        .await;
    for rows in [1_000, 100, 10, 1] {
        let some =
            format!("insert into junk select repeat('x', 7000) from generate_series(1, {rows})");
        while session.try_run(&some).await.is_ok() {}
    }
}

#[test]
fn a_full_disk_is_told_as_such_and_nothing_that_was_acknowledged_is_lost() {
    let runtime = runtime();
    let server = small(&runtime);
    let url = server.url_of("relay");
    succeed(&url, &["migrate"]);
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &url, &GENEROUS);
    let load = Load::by(&sam);
    thread::scope(|scope| {
        load.start(scope, &served.public);
        load.wait_for_more(100);
        let session = runtime.block_on(Session::open(&url));
        assert_eq!(load.unavailable(), 0);
        runtime.block_on(fill(&session));
        load.wait_for_refusal();
        // Who only reads is served.
        assert!(sam.pull_all(&served.public, "d:sam").len() >= 200);
        runtime.block_on(session.run("drop table junk"));
        load.wait_for_all(SECONDS);
        let refused = load.unavailable();
        load.wait_for_more(100);
        assert_eq!(load.unavailable(), refused, "there is room again");
        load.stop();
    });
    load.reconcile(&served.public);
    assert!(served.stop().0.success());
}
