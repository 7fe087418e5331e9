//! The writer from outside: what shares a commit, and that sharing one changes no answer.

use std::{pin::Pin, task::Poll};

use argala_core::{
    Fault, Outcome, Rejection, StoreErrorKind,
    ports::{Store, store::PushOutcome},
};
use argala_sqlite::Options;
use argala_wire::records::PushResult;
use futures_util::{FutureExt, future::join_all};

use crate::scene::{Scene, graph, pull, push, records};

type Pushing<'a> = Pin<Box<dyn Future<Output = Outcome<PushOutcome>> + Send + 'a>>;

/// Hands the futures' commands in, by asking each once.
fn hand_in(futures: &mut [Pushing<'_>]) {
    for future in futures {
        assert!(
            future.as_mut().now_or_never().is_none(),
            "the writer is held up"
        );
    }
}

/// A connection of another process that writes, and holds the relay's writer up.
fn hold_up(scene: &Scene) -> rusqlite::Connection {
    let other = scene.beside();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test]
async fn what_waits_shares_a_commit() {
    let scene = Scene::new();
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    scene.commits.take();

    let other = hold_up(&scene);
    let mut pushes: Vec<Pushing<'_>> = (0..100)
        .map(|at| {
            let record = devices[0].record(&key, &format!("r{at}"), 1, b"content");
            scene.db.push(push(&key, &devices[0], vec![record]))
        })
        .collect();
    hand_in(&mut pushes);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let answers = join_all(pushes).await;

    // In the order in which they were handed in, each with a seq of its own.
    for (answer, seq) in answers.into_iter().zip(1..) {
        let answer = answer.unwrap().answer;
        assert_eq!(answer.head, seq);
        assert!(
            matches!(answer.results[..], [PushResult::Accepted { seq: given, .. }] if given == seq)
        );
    }
    // The first may have begun alone; the rest waited for it together.
    let commits = scene.commits.take();
    assert!(commits.len() <= 2, "{} commits", commits.len());
    assert_eq!(commits.iter().map(Vec::len).sum::<usize>(), 100);
    scene.counters_are_exact(&key).await;
}

#[tokio::test]
async fn no_neighbour_notices_another() {
    let scene = Scene::new();
    let devices = scene.devices("sam", 2).await;
    let (key, unkeyed) = (graph("acme"), graph("nobody"));
    scene.rotate(&key, 1, &devices[..]).await;
    let record = |id: &str| devices[0].record(&key, id, 1, id.as_bytes());

    let other = hold_up(&scene);
    let db = &scene.db;
    let mut late = record("late");
    late.expect = Some(u64::MAX);
    let mut atomic = push(&key, &devices[0], vec![record("half"), late.clone()]);
    atomic.atomic = true;
    let mut moved = push(&key, &devices[0], vec![record("moved")]);
    moved.if_head = Some(u64::MAX);
    let mut pushes: Vec<Pushing<'_>> = vec![
        db.push(push(&key, &devices[0], vec![record("first")])),
        db.push(push(&unkeyed, &devices[0], vec![record("none")])),
        db.push(atomic),
        db.push(push(&key, &devices[1], vec![record("gone")])),
        db.push(moved),
        db.push(push(&key, &devices[0], vec![late])),
        db.push(push(&key, &devices[1], vec![record("last")])),
    ];
    hand_in(&mut pushes);
    // Its caller goes away before its turn has come.
    drop(pushes.remove(3));
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let answers = join_all(pushes).await;

    let rejection = |at: usize| match &answers[at] {
        Err(Fault::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    };
    assert_eq!(answers[0].as_ref().unwrap().answer.head, 1);
    assert_eq!(*rejection(1), Rejection::GraphUnkeyed);
    assert!(matches!(rejection(2), Rejection::PushRejected { .. }));
    assert_eq!(*rejection(3), Rejection::HeadMoved { head: 1 });
    assert_eq!(answers[4].as_ref().unwrap().answer.rejected, 1);
    assert_eq!(answers[5].as_ref().unwrap().answer.head, 2);
    let there: Vec<_> = scene.pull_all(&key, &devices[0]).await;
    let there: Vec<_> = there.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(there, ["first", "last"]);
    scene.counters_are_exact(&key).await;
}

#[tokio::test]
async fn a_full_queue_is_told_at_once() {
    let scene = Scene::with(Options {
        queue: 2,
        ..Options::default()
    });
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;

    let other = hold_up(&scene);
    let mut waiting: Vec<Pushing<'_>> = Vec::new();
    // Two wait; how many the writer has taken already is its own affair.
    let full = loop {
        let mut next = scene
            .db
            .push(push(&key, &devices[0], records(&key, &devices[0], 1, "x")));
        let polled = futures_util::poll!(&mut next);
        match polled {
            Poll::Pending => waiting.push(next),
            Poll::Ready(answer) => break answer,
        }
        assert!(waiting.len() < 10, "the queue has an end");
    };
    match full {
        Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        other => panic!("{other:?}"),
    }
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    for answer in join_all(waiting).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn another_process_that_writes_too_long_is_unavailable_and_passes() {
    let scene = Scene::with(Options {
        busy_timeout: std::time::Duration::from_millis(20),
        ..Options::default()
    });
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;

    let other = hold_up(&scene);
    let record = || push(&key, &devices[0], records(&key, &devices[0], 1, "x"));
    match scene.db.push(record()).await {
        Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        other => panic!("{other:?}"),
    }
    // Reads do not wait for it.
    scene.db.pull(pull(&key, &devices[0], 10)).await.unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(scene.db.push(record()).await.unwrap().answer.head, 1);
}

#[tokio::test]
async fn closing_finishes_what_waits_and_refuses_what_comes() {
    let scene = Scene::new();
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;

    let other = hold_up(&scene);
    let mut pushes: Vec<Pushing<'_>> = (0..20)
        .map(|at| {
            let record = devices[0].record(&key, &format!("r{at}"), 1, b"content");
            scene.db.push(push(&key, &devices[0], vec![record]))
        })
        .collect();
    hand_in(&mut pushes);
    let mut close = Box::pin(scene.db.close());
    assert!(close.as_mut().now_or_never().is_none());
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    close.await;

    for answer in join_all(pushes).await {
        answer.unwrap();
    }
    match scene.db.ping().await {
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        Ok(()) => panic!("it is closed"),
    }
    match scene.db.push(push(&key, &devices[0], Vec::new())).await {
        Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        other => panic!("{other:?}"),
    }
    // Closing again has nothing to do, and the log has been folded into the database.
    scene.db.close().await;
    let log = scene.folder.path().join("relay.db-wal");
    assert!(!log.exists());
    let count = "SELECT count(*) FROM records";
    let count: i64 = scene
        .beside()
        .query_row(count, [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 20);
}
