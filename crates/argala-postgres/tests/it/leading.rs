//! One sweeper leads, and one that has lost its lead writes nothing any more.

use std::time::Duration;

use argala_postgres::{Leadership, Options, lead};
use argala_testkit::{
    EPOCH, eventually,
    servers::{Database, Session},
};

use crate::database::{migrated, options};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

async fn leader(database: &Database, lease: Duration) -> Option<Leadership> {
    lead(&options(database.url()), lease).await.unwrap()
}

/// Leads as soon as nobody else does.
async fn next(database: &Database) -> Leadership {
    eventually("another leads", || leader(database, LONG)).await
}

async fn is_out(leader: &Leadership) {
    let store = leader.store();
    for _ in 0..2 {
        // Not even over a connection of its own making.
        assert!(store.drop_tombstones(EPOCH, 9).await.is_err());
        assert!(store.erasures(9).await.is_err());
        assert!(store.ping().await.is_err());
    }
    tokio::time::timeout(LONG, leader.lost()).await.unwrap();
}

#[tokio::test]
async fn of_two_one_leads_and_the_other_takes_over() {
    let database = migrated().await;
    let first = leader(&database, LONG).await.unwrap();
    assert_eq!(first.store().drop_tombstones(EPOCH, 9).await.unwrap(), 0);
    assert!(leader(&database, LONG).await.is_none());
    first.close().await;
    let second = next(&database).await;
    assert!(leader(&database, LONG).await.is_none());
    drop(second);
    next(&database).await;
}

#[tokio::test]
async fn a_leader_that_says_nothing_is_out() {
    let database = migrated().await;
    // Nobody asks whether it is lost, so it gives no sign of life: as one that was stopped.
    let silent = leader(&database, SHORT).await.unwrap();
    let second = next(&database).await;
    is_out(&silent).await;
    assert!(leader(&database, LONG).await.is_none(), "the second leads");
    second.store().ping().await.unwrap();
}

#[tokio::test]
async fn a_leader_gives_signs_of_life() {
    let database = migrated().await;
    let first = leader(&database, SHORT).await.unwrap();
    let beside = Session::open(&database.url()).await;
    let looks = async {
        // Three leases by the server's own clock.
        beside.run("SELECT pg_sleep(3)").await;
        assert!(leader(&database, LONG).await.is_none());
    };
    tokio::select! {
        () = first.lost() => panic!("it was there all the time"),
        () = looks => {}
    }
    first.store().ping().await.unwrap();
}

#[tokio::test]
async fn a_leader_whose_connection_breaks_knows_at_once() {
    let database = migrated().await;
    let first = leader(&database, LONG).await.unwrap();
    let beside = Session::open(&database.url()).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_locks
                WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    // Before it would have given the next sign of life.
    let (lost, killed) = tokio::join!(
        tokio::time::timeout(LONG / 4, first.lost()),
        beside.column(kill)
    );
    lost.unwrap();
    assert_eq!(killed.len(), 1);
    is_out(&first).await;
    next(&database).await;
}

#[tokio::test]
async fn a_leader_goes_past_a_pooler() {
    let database = migrated().await;
    let nowhere = Options::new("postgres://nobody@127.0.0.1:1/none");
    assert!(lead(&nowhere, LONG).await.is_err());
    let direct = Options {
        url: "postgres://nobody@127.0.0.1:1/none".to_owned(),
        direct_url: Some(database.url()),
        ..options(database.url())
    };
    assert!(lead(&direct, LONG).await.unwrap().is_some());
}
