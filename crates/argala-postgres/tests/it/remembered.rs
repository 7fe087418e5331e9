//! Pushes that are decided on what a replica remembers: what they cost, and that whatever has made
//! it wrong is seen, on every replica, by every push that is answered after it.

use std::{sync::Arc, time::Duration};

use argala_core::{
    Fault, Outcome, Rejection,
    ports::{
        Store, SweepStore,
        store::{Idempotency, Push, PushOutcome, Revoke},
    },
};
use argala_postgres::{Options, Postgres, Statements, Timeouts};
use argala_testkit::{EPOCH, TestDevice, conformance::Fresh, eventually};
use argala_wire::{
    StorageKey,
    records::{PushReason, PushRecord, PushResult},
};
use futures_util::{FutureExt, future::join_all};

use crate::{
    database::{handles, migrated, options},
    scene::{Scene, grant, graph, push, records, rotate},
};

/// A scene, and a second replica.
struct Two {
    scene: Scene,
    other: Arc<Postgres>,
    devices: Vec<TestDevice>,
    key: StorageKey,
}

impl Two {
    /// Two devices hold the graph's key, and the first replica remembers both.
    async fn new() -> Self {
        let scene = Scene::new().await;
        let other = handles(1, &options(scene.database.url())).await.remove(0);
        let devices = scene.devices("sam", 3).await;
        let key = graph("acme");
        scene.rotate(&key, 1, &devices).await;
        let two = Self {
            scene,
            other,
            devices,
            key,
        };
        for (at, device) in two.devices[..2].iter().enumerate() {
            two.taken(device, &format!("first{at}")).await;
        }
        for (at, device) in two.devices[..2].iter().enumerate() {
            two.scene.statements.take();
            two.taken(device, &format!("second{at}")).await;
            assert_eq!(two.scene.statements.take().len(), 1, "it is remembered");
        }
        two
    }

    fn record(&self, by: &TestDevice, id: &str) -> PushRecord {
        by.record(&self.key, id, 1, b"content")
    }

    async fn push(&self, by: &TestDevice, id: &str) -> Outcome<PushOutcome> {
        let push = push(&self.key, by, vec![self.record(by, id)]);
        self.scene.db.push(push).await
    }

    async fn taken(&self, by: &TestDevice, id: &str) -> u64 {
        match &self.push(by, id).await.unwrap().answer.results[..] {
            [PushResult::Accepted { seq, .. }] => *seq,
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&self, by: &TestDevice, id: &str) -> PushReason {
        match &self.push(by, id).await.unwrap().answer.results[..] {
            [PushResult::Rejected { reason, .. }] => *reason,
            other => panic!("{other:?}"),
        }
    }

    async fn rejected(&self, by: &TestDevice, id: &str) -> Rejection {
        match self.push(by, id).await {
            Err(Fault::Rejected(rejection)) => rejection,
            other => panic!("{other:?}"),
        }
    }
}

/// What an operator with `psql` changes, behind every replica's back.
async fn by_hand(scene: &Scene, sql: &str) {
    scene.beside().await.run(sql).await;
}

#[tokio::test]
async fn the_second_push_is_one_round_trip() {
    type Change = fn(&mut Options);
    let ways: [(Change, usize); 4] = [
        (|_| {}, 1),
        (|options| options.statements = Statements::Unnamed, 1),
        // The transaction's timeouts stand before it, and the commit after it, in one round trip.
        (|options| options.timeouts = Timeouts::Transaction, 3),
        (|options| options.group_pushes = false, 1),
    ];
    for (change, count) in ways {
        let scene = Scene::with(change).await;
        let devices = scene.devices("sam", 1).await;
        let (key, by) = (graph("acme"), &devices[0]);
        scene.rotate(&key, 1, &devices).await;
        for turn in 0..5 {
            let mut request = push(&key, by, Vec::new());
            for at in 0..10 {
                let record = by.record(&key, &format!("r{turn} {at}"), 1, b"content");
                request.records.extend(push(&key, by, vec![record]).records);
            }
            if turn % 2 == 0 {
                request.idempotency = Some(Idempotency {
                    key: format!("k{turn}"),
                    body: [0; 32],
                    since: EPOCH,
                });
            }
            scene.statements.take();
            let outcome = scene.db.push(request).await.unwrap();
            assert_eq!(outcome.answer.head, (turn + 1) * 10);
            let sent = scene.statements.take();
            assert_eq!(turn > 0, sent.len() == count, "{sent:#?}");
        }
        assert_eq!(scene.pull_all(&key, by).await.len(), 50);
        scene.counters_are_exact(&key).await;
    }
}

#[tokio::test]
async fn what_another_replica_does_is_seen_at_once() {
    // A push.
    let two = Two::new().await;
    let [first, second, third] = [0, 1, 2].map(|at| &two.devices[at]);
    let request = push(&two.key, third, records(&two.key, third, 5, "content"));
    two.other.push(request).await.unwrap();
    assert_eq!(two.taken(first, "after").await, 10);
    // A push of what the other replica has taken meanwhile.
    let request = push(&two.key, first, records(&two.key, first, 1, "other"));
    two.other.push(request).await.unwrap();
    let request = push(&two.key, first, records(&two.key, first, 1, "other"));
    let outcome = two.scene.db.push(request).await.unwrap();
    assert!(!outcome.changed);
    // A grant changes nothing for those who are known, and nobody is refused for not being known.
    let alex = two.scene.devices("alex", 1).await;
    two.other
        .grant(grant(&two.key, first, &alex, 1))
        .await
        .unwrap();
    two.taken(first, "beside a grant").await;
    two.taken(&alex[0], "granted").await;
    let some = [first.clone(), third.clone()];
    let revoke = |by: &TestDevice, device: &TestDevice| Revoke {
        by: by.to_ref(),
        device_id: device.to_ref().device_id,
        now: EPOCH,
    };
    // A revocation.
    two.other.revoke(revoke(first, second)).await.unwrap();
    assert!(matches!(
        two.rejected(second, "revoked").await,
        Rejection::DeviceRevoked
    ));
    two.taken(first, "beside a revocation").await;
    // A rotation.
    let request = rotate(&two.key, 2, &some);
    two.other.rotate(request).await.unwrap();
    let reason = two.refused(first, "stale").await;
    assert!(matches!(reason, PushReason::StaleEpoch { epoch: 2 }));
    two.scene.counters_are_exact(&two.key).await;
}

#[tokio::test]
async fn what_is_changed_by_hand_is_seen_at_once() {
    let who = "member = 'sam' AND device = 'd0'";
    for (sql, told) in [
        ("UPDATE wraps SET wrap = NULL WHERE ", "NotHolder"),
        ("DELETE FROM wraps WHERE ", "NotHolder"),
        ("UPDATE devices SET revoked_at = 1 WHERE ", "DeviceRevoked"),
        ("DELETE FROM devices WHERE ", "DeviceUnregistered"),
    ] {
        let two = Two::new().await;
        by_hand(&two.scene, &format!("{sql} {who}")).await;
        let answer = format!("{:?}", two.push(&two.devices[0], "after").await);
        assert!(answer.contains(told), "{sql}: {answer}");
        two.taken(&two.devices[1], "beside it").await;
    }
    let two = Two::new().await;
    by_hand(
        &two.scene,
        "UPDATE graphs SET epoch = epoch + 1000; DELETE FROM records WHERE record = 'first0';
         UPDATE graphs SET records = records - 1, ciphertext_bytes = ciphertext_bytes - 7",
    )
    .await;
    let reason = two.refused(&two.devices[0], "after").await;
    assert!(matches!(reason, PushReason::StaleEpoch { epoch: 1001 }));
    two.scene.counters_are_exact(&two.key).await;
}

/// Who is not known is looked up, and those who were known before stay so; not those who have lost
/// their key meanwhile.
#[tokio::test]
async fn who_has_lost_the_key_is_not_known_for_anothers_sake() {
    let two = Two::new().await;
    let [first, second, third] = [0, 1, 2].map(|at| &two.devices[at]);
    by_hand(
        &two.scene,
        "UPDATE wraps SET wrap = NULL WHERE device = 'd1'",
    )
    .await;
    two.taken(third, "unknown").await;
    let reason = two.refused(second, "after").await;
    assert!(matches!(reason, PushReason::NotHolder), "{reason:?}");
    two.taken(first, "beside it").await;
    two.scene.counters_are_exact(&two.key).await;
}

/// A push that comes while somebody revokes its device waits, and is told what was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_waits_for_whoever_has_the_graph() {
    let two = Two::new().await;
    let by = &two.devices[0];
    let beside = two.scene.beside().await;
    beside
        .run("BEGIN; UPDATE devices SET revoked_at = 1 WHERE member = 'sam' AND device = 'd0'")
        .await;
    let mut pushing = std::pin::pin!(two.push(by, "waits"));
    assert!(pushing.as_mut().now_or_never().is_none());
    waits_for_a_lock(&two.scene).await;
    beside.run("COMMIT").await;
    assert!(matches!(
        pushing.await,
        Err(Fault::Rejected(Rejection::DeviceRevoked))
    ));
    two.scene.counters_are_exact(&two.key).await;
}

async fn waits_for_a_lock(scene: &Scene) {
    let beside = scene.beside().await;
    eventually("somebody waits for a lock", || async {
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

/// The same key half a day later lies in another slot, and is the same key all the same.
#[tokio::test]
async fn a_key_is_known_in_every_slot() {
    let two = Two::new().await;
    let by = &two.devices[0];
    let keyed = |id: &str, hours: u64, body: u8| {
        let mut request = push(&two.key, by, vec![two.record(by, id)]);
        request.now = EPOCH.saturating_add(Duration::from_secs(hours * 3_600));
        request.idempotency = Some(Idempotency {
            key: "k".to_owned(),
            body: [body; 32],
            since: EPOCH,
        });
        request
    };
    let first = two.scene.db.push(keyed("one", 0, 1)).await.unwrap();
    for hours in [0, 7, 13, 23] {
        two.taken(by, &format!("beside {hours}")).await;
        let again = two.scene.db.push(keyed("one", hours, 1)).await.unwrap();
        assert_eq!(again.answer, first.answer, "{hours}");
        assert!(!again.changed);
        let other = two.scene.db.push(keyed("other", hours, 2)).await;
        assert!(matches!(
            other,
            Err(Fault::Rejected(Rejection::IdempotencyConflict))
        ));
    }
    two.scene.counters_are_exact(&two.key).await;
}

/// Pushes to many graphs share statements: where one of them cannot be written, and where one's
/// graph is locked, the others are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shares_a_statement_does_not_suffer_for_it() {
    let scene = Scene::with(|options| options.connections = 4).await;
    let devices = scene.devices("sam", 1).await;
    let by = &devices[0];
    let keys: Vec<_> = (0..12).map(|at| graph(&format!("graph {at}"))).collect();
    for key in &keys {
        scene.rotate(key, 1, &devices).await;
        scene.push(key, by, records(key, by, 1, "content")).await;
    }
    by_hand(&scene, "ALTER TABLE records ADD CHECK (record <> 'bad')").await;
    // One statement is held up, so that the others gather behind it.
    let beside = scene.beside().await;
    beside.run("BEGIN; LOCK TABLE records IN SHARE MODE").await;
    let one = |at: usize, id: &str| -> Push {
        push(&keys[at], by, vec![by.record(&keys[at], id, 1, b"content")])
    };
    let mut pushes = vec![scene.db.push(one(0, "first"))];
    assert!(pushes[0].as_mut().now_or_never().is_none());
    waits_for_a_lock(&scene).await;
    scene.statements.take();
    // A record that is there, one that cannot be, and others.
    let mut more = vec![scene.db.push(one(1, "r0")), scene.db.push(one(2, "bad"))];
    more.extend((3..12).map(|at| scene.db.push(one(at, "good"))));
    for push in &mut more {
        assert!(push.as_mut().now_or_never().is_none());
    }
    pushes.extend(more);
    beside.run("COMMIT").await;
    let answers = join_all(pushes).await;
    for (at, answer) in answers.iter().enumerate() {
        match (at, answer) {
            (2, Err(Fault::Store(_))) => {}
            (1, Ok(outcome)) => assert!(!outcome.changed || outcome.answer.head == 2),
            (_, Ok(outcome)) => assert_eq!(outcome.answer.head, 2, "{at}"),
            (_, other) => panic!("{at}: {other:?}"),
        }
    }
    for key in &keys {
        scene.counters_are_exact(key).await;
    }

    // And all at once again, with a graph that somebody has locked.
    for key in &keys {
        let record = by.record(key, "again", 1, b"content");
        scene.push(key, by, vec![record]).await;
    }
    let beside = scene.beside().await;
    beside
        .run(&format!(
            "BEGIN; SELECT 1 FROM graphs WHERE storage_key = '{}' FOR UPDATE",
            keys[5]
        ))
        .await;
    let mut stuck = scene.db.push(one(5, "stuck"));
    assert!(stuck.as_mut().now_or_never().is_none());
    let free = (0..12).filter(|at| *at != 5).map(|at| {
        let push = one(at, "free");
        scene.db.push(push)
    });
    for answer in join_all(free).await {
        answer.unwrap();
    }
    beside.run("ROLLBACK").await;
    stuck.await.unwrap();
    for key in &keys {
        scene.counters_are_exact(key).await;
    }
}

/// A graph that is pushed to on two replicas in turns is not tried in vain each time.
#[tokio::test]
async fn a_graph_that_is_stale_mostly_is_tried_seldom() {
    let two = Two::new().await;
    let by = &two.devices[0];
    let mut tries = 0;
    for turn in 0..100 {
        let record = two.record(by, &format!("there {turn}"));
        two.other
            .push(push(&two.key, by, vec![record]))
            .await
            .unwrap();
        two.scene.statements.take();
        two.taken(by, &format!("here {turn}")).await;
        let sent = two.scene.statements.take();
        tries += sent
            .iter()
            .filter(|sql| sql.contains("SKIP LOCKED"))
            .count();
    }
    assert!((2..10).contains(&tries), "{tries} of 100");
    two.scene.counters_are_exact(&two.key).await;
}

async fn two_stores_that_remember_nothing() -> Fresh<dyn SweepStore> {
    let database = migrated().await;
    let options = Options {
        remember: 0,
        ..options(database.url())
    };
    let handles = handles(2, &options).await;
    let handles = handles.into_iter().map(|it| it as Arc<dyn SweepStore>);
    Fresh::of(handles.collect(), database)
}

/// The contract without any of it.
mod nothing {
    mod store {
        argala_testkit::store_conformance!(super::super::two_stores_that_remember_nothing);
    }

    mod race {
        argala_testkit::race_conformance!(super::super::two_stores_that_remember_nothing);
    }
}
