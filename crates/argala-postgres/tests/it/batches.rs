//! Pushes that gather, from outside: what shares a commit, and that sharing one changes no answer.

use std::{pin::Pin, sync::Arc, time::Duration};

use argala_core::{
    Fault, Outcome, Rejection, StoreErrorKind,
    ports::{
        Store,
        store::{Idempotency, PushOutcome},
    },
};
use argala_testkit::{EPOCH, PATIENCE, eventually, servers::Session};
use argala_wire::{
    StorageKey,
    records::{PushRecord, PushResult},
};
use futures_util::{FutureExt, future::join_all};

use crate::scene::{Scene, graph, push, records};

type Pushing<'a> = Pin<Box<dyn Future<Output = Outcome<PushOutcome>> + Send + 'a>>;

/// Hands the pushes in, by asking each once.
fn hand_in(pushes: &mut [Pushing<'_>]) {
    for push in pushes {
        assert!(push.as_mut().now_or_never().is_none(), "it is held up");
    }
}

/// A session that holds a graph's row, as somebody with `psql` may.
async fn hold(scene: &Scene, key: &StorageKey) -> Session {
    let beside = scene.beside().await;
    beside
        .run(&format!(
            "BEGIN; SELECT 1 FROM graphs WHERE storage_key = '{key}' FOR UPDATE"
        ))
        .await;
    beside
}

/// Waits until somebody waits for a lock.
async fn somebody_waits(scene: &Scene) {
    let beside = scene.beside().await;
    eventually("somebody waits for the lock", || async {
        let waiting = beside
            .text(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
        (waiting != "0").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_shares_a_commit() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 3).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let beside = hold(&scene, &key).await;
    let one = |at: usize| {
        let device = &devices[at % 3];
        let record = device.record(&key, &format!("r{at}"), 1, b"content");
        push(&key, device, vec![record])
    };
    let mut pushes: Vec<Pushing<'_>> = vec![scene.db.push(one(0))];
    hand_in(&mut pushes);
    somebody_waits(&scene).await;
    let mut more: Vec<Pushing<'_>> = (1..40).map(|at| scene.db.push(one(at))).collect();
    hand_in(&mut more);
    // One that hangs up while it waits is not written, and holds nobody up.
    let mut gone = scene.db.push(push(
        &key,
        &devices[0],
        vec![devices[0].record(&key, "gone", 1, b"content")],
    ));
    assert!(gone.as_mut().now_or_never().is_none());
    drop(gone);
    beside.run("ROLLBACK").await;
    pushes.extend(more);
    let mut seqs = Vec::new();
    for answer in join_all(pushes).await {
        match &answer.unwrap().answer.results[..] {
            [PushResult::Accepted { seq, .. }] => seqs.push(*seq),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seqs, (1..=40).collect::<Vec<_>>(), "in the order they came");
    assert_eq!(scene.commits.take(), [1, 39]);
    assert_eq!(scene.pull_all(&key, &devices[0]).await.len(), 40);
    scene.counters_are_exact(&key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_record_and_the_same_key_are_decided_in_order_and_written_once() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let (key, by) = (graph("acme"), &devices[0]);
    scene.rotate(&key, 1, &devices).await;
    scene.push(&key, by, records(&key, by, 1, "before")).await;
    let beside = hold(&scene, &key).await;
    let keyed = |name: &str, body: u8, records: Vec<PushRecord>| {
        let mut request = push(&key, by, records);
        request.idempotency = Some(Idempotency {
            key: name.to_owned(),
            body: [body; 32],
            since: EPOCH,
        });
        request
    };
    let record = |content: &str, expect: Option<u64>| PushRecord {
        expect,
        ..by.record(&key, "r0", 1, content.as_bytes())
    };
    let mut pushes: Vec<Pushing<'_>> =
        vec![
            scene
                .db
                .push(push(&key, by, vec![by.record(&key, "other", 1, b"x")])),
        ];
    hand_in(&mut pushes);
    somebody_waits(&scene).await;
    let mut more: Vec<Pushing<'_>> = [
        // What is there already.
        push(&key, by, vec![record("before", None)]),
        keyed("k", 1, vec![record("longer than before", Some(1))]),
        // A repeat, and another body under its key.
        keyed("k", 1, vec![record("longer than before", Some(1))]),
        keyed("k", 2, vec![record("longer than before", Some(1))]),
        // The one before it is what it expects; the one after is not.
        push(&key, by, vec![record("third", Some(3))]),
        push(&key, by, vec![record("fourth", Some(3))]),
        // The content of the one before it, by the same device.
        push(&key, by, vec![record("third", Some(3))]),
    ]
    .into_iter()
    .map(|request| scene.db.push(request))
    .collect();
    hand_in(&mut more);
    beside.run("ROLLBACK").await;
    pushes.extend(more);
    let mut told = Vec::new();
    for answer in join_all(pushes).await {
        told.push(match answer {
            Ok(outcome) => match &outcome.answer.results[..] {
                [PushResult::Accepted { seq, .. }] => format!("{seq} {}", outcome.changed),
                [PushResult::Rejected { reason, .. }] => format!("{reason:?}"),
                other => panic!("{other:?}"),
            },
            Err(Fault::Rejected(Rejection::IdempotencyConflict)) => "conflict".to_owned(),
            Err(other) => panic!("{other:?}"),
        });
    }
    let wanted = [
        "2 true",
        "1 false",
        "3 true",
        "3 false",
        "conflict",
        "4 true",
        "Conflict { seq: 4 }",
        "4 false",
    ];
    assert_eq!(told, wanted);
    assert_eq!(scene.commits.take()[1..], [1, 7]);
    let there = scene.pull_all(&key, by).await;
    let there: Vec<_> = there
        .iter()
        .map(|it| (it.seq, it.id.as_str(), it.ciphertext.as_slice()))
        .collect();
    assert_eq!(there, [(2, "other", &b"x"[..]), (4, "r0", &b"third"[..])]);
    scene.counters_are_exact(&key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_database_refuses_what_is_shared_each_is_tried_alone() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let (key, by) = (graph("acme"), &devices[0]);
    scene.rotate(&key, 1, &devices).await;
    // What the database may have against one of them.
    scene
        .beside()
        .await
        .run("ALTER TABLE records ADD CHECK (record <> 'bad')")
        .await;
    let beside = hold(&scene, &key).await;
    let one = |id: &str| push(&key, by, vec![by.record(&key, id, 1, b"content")]);
    let mut pushes: Vec<Pushing<'_>> = vec![scene.db.push(one("first"))];
    hand_in(&mut pushes);
    somebody_waits(&scene).await;
    let mut more: Vec<Pushing<'_>> = ["a", "bad", "b"]
        .into_iter()
        .map(|id| scene.db.push(one(id)))
        .collect();
    hand_in(&mut more);
    beside.run("ROLLBACK").await;
    pushes.extend(more);
    let answers = join_all(pushes).await;
    let good: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, true, false, true]);
    match &answers[2] {
        Err(Fault::Store(error)) => {
            assert_eq!(error.kind, StoreErrorKind::Internal);
            let told = format!("{error} {:?}", error.source);
            assert!(!told.contains("bad"), "no id of a record: {told}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.commits.take(), [1, 1, 1]);
    let seqs: Vec<_> = scene.pull_all(&key, by).await;
    let seqs: Vec<_> = seqs.iter().map(|it| (it.seq, it.id.as_str())).collect();
    assert_eq!(seqs, [(1, "first"), (2, "a"), (3, "b")]);
    scene.counters_are_exact(&key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_graph_delays_no_other() {
    let scene = Scene::with(|options| {
        options.connections = 3;
        options.lock_timeout = Duration::from_secs(1);
    })
    .await;
    let devices = scene.devices("sam", 1).await;
    let (stuck, free, by) = (graph("stuck"), graph("free"), &devices[0]);
    for key in [&stuck, &free] {
        scene.rotate(key, 1, &devices).await;
    }
    let beside = hold(&scene, &stuck).await;
    let mut pushes: Vec<Pushing<'_>> = (0..30)
        .map(|at| {
            let record = by.record(&stuck, &format!("r{at}"), 1, b"content");
            scene.db.push(push(&stuck, by, vec![record]))
        })
        .collect();
    hand_in(&mut pushes);
    somebody_waits(&scene).await;
    // However many wait for one graph, they have one connection.
    for at in 0..20 {
        let record = by.record(&free, &format!("r{at}"), 1, b"content");
        scene.push(&free, by, vec![record]).await;
    }
    assert_eq!(scene.pull_all(&free, by).await.len(), 20);
    // The first is told when its time for the lock is over; the others share their time.
    let answers = tokio::time::timeout(PATIENCE, join_all(pushes))
        .await
        .unwrap();
    for answer in answers {
        match answer {
            Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
            other => panic!("{other:?}"),
        }
    }
    beside.run("ROLLBACK").await;
    assert!(scene.pull_all(&stuck, by).await.is_empty());
    scene
        .push(&stuck, by, records(&stuck, by, 3, "content"))
        .await;
    scene.counters_are_exact(&stuck).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_finishes_what_was_taken_and_refuses_what_comes() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let beside = hold(&scene, &key).await;
    let mut pushes: Vec<Pushing<'_>> = (0..20)
        .map(|at| {
            let record = devices[0].record(&key, &format!("r{at}"), 1, b"content");
            scene.db.push(push(&key, &devices[0], vec![record]))
        })
        .collect();
    hand_in(&mut pushes);
    somebody_waits(&scene).await;
    let db = Arc::clone(&scene.db);
    let closing = tokio::spawn(async move { db.close().await });
    beside.run("ROLLBACK").await;
    closing.await.unwrap();
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
    let count = beside.text("SELECT count(*) FROM records").await;
    assert_eq!(count, "20");
}
