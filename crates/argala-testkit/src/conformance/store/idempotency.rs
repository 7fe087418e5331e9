//! Pushes with an idempotency key.

use argala_core::{
    Rejection,
    ports::{
        SweepStore,
        store::{Idempotency, Push},
    },
};
use argala_wire::{StorageKey, Timestamp, records::PushRecord};

use super::{Scene, acme, at, refused};
use crate::{TestDevice, conformance::Fresh, member};

/// Long before anything in these cases.
const ALWAYS: Timestamp = Timestamp::from_millis(0);

fn keyed(push: Push, key: &str, body: u8) -> Push {
    Push {
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            body: [body; 32],
            since: ALWAYS,
        }),
        ..push
    }
}

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, [TestDevice; 2]) {
    let scene = Scene::new(fresh);
    let devices = scene.devices([("sam", "a"), ("sam", "b")]).await;
    scene.rotate(&acme(), 1, &[&devices[0], &devices[1]]).await;
    (scene, devices)
}

/// Though the record was replaced since, and the epoch has passed; nothing is written.
pub async fn a_repeat_is_answered_as_the_first_time(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, b]) = ready(fresh).await;
    let records = vec![
        a.record(&acme(), "one", 1, b"mine"),
        a.record(&acme(), "bad", 9, b"x"),
    ];
    let mut request = keyed(scene.push_request(&acme(), &a, records), "k", 1);
    request.if_head = Some(0);
    let first = scene.store().push(request.clone()).await.expect("pushed");
    assert!(first.changed);
    assert_eq!((first.answer.accepted, first.answer.rejected), (1, 1));
    scene
        .push(&acme(), &b, vec![b.record(&acme(), "one", 1, b"newer")])
        .await;
    scene.rotate(&acme(), 2, &[&a, &b]).await;
    let before = scene.records(&acme(), &b).await;
    for _ in 0..3 {
        let again = scene.store().push(request.clone()).await.expect("a repeat");
        assert_eq!(again.answer, first.answer);
        assert!(!again.changed);
    }
    assert_eq!(scene.records(&acme(), &b).await, before);
    scene.counters(&acme()).await;
    // Nothing at all is an answer, too.
    let empty = keyed(scene.push_request(&acme(), &a, Vec::new()), "empty", 2);
    let first = scene.store().push(empty.clone()).await.expect("pushed");
    scene.fill(&acme(), &a, 2, &["more"]).await;
    let again = scene.store().push(empty).await.expect("a repeat");
    assert_eq!(again.answer, first.answer);
}

/// And is not taken.
pub async fn another_body_is_a_conflict(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, _]) = ready(fresh).await;
    let push = |id: &str, body: u8| {
        let record = a.record(&acme(), id, 1, b"x");
        keyed(scene.push_request(&acme(), &a, vec![record]), "k", body)
    };
    scene.store().push(push("one", 1)).await.expect("pushed");
    for (id, body) in [("two", 2), ("one", 3)] {
        let refusal = refused(scene.store().push(push(id, body)).await);
        assert_eq!(refusal, Rejection::IdempotencyConflict);
    }
    assert_eq!(scene.records(&acme(), &a).await.len(), 1);
    let again = scene.store().push(push("one", 1)).await.expect("a repeat");
    assert_eq!(again.answer.head, 1);
}

/// The same text means nothing to another device, in another graph, or in another case.
pub async fn a_key_is_of_one_device_and_one_graph(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, b]) = ready(fresh).await;
    let own = StorageKey::own(&member("sam"));
    scene.rotate(&own, 1, &[&a, &b]).await;
    let long = "~".repeat(128);
    let mut number = 0;
    for key in ["k", "K", "'; --", "%", "_", &long] {
        for (graph, by) in [(acme(), &a), (acme(), &b), (own.clone(), &a)] {
            number += 1;
            let id = format!("r{number}");
            let request = scene.push_request(&graph, by, vec![by.record(&graph, &id, 1, b"x")]);
            let request = keyed(request, key, number);
            let pushed = scene.store().push(request.clone()).await.expect("pushed");
            assert!(pushed.changed, "{key} of {graph}");
            let again = scene.store().push(request).await.expect("a repeat");
            assert_eq!((again.answer, again.changed), (pushed.answer, false));
        }
    }
    assert_eq!(scene.records(&acme(), &a).await.len(), 12);
    assert_eq!(scene.records(&own, &a).await.len(), 6);
}

/// What was stored before `since` is as good as gone, and a new answer takes its place.
pub async fn a_key_lasts_as_long_as_it_is_told_to(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, _]) = ready(fresh).await;
    let push = |body: u8, since: Timestamp, now: Timestamp| {
        let record: PushRecord = a.record(&acme(), &format!("r{body}"), 1, b"x");
        let mut request = keyed(scene.push_request(&acme(), &a, vec![record]), "k", body);
        request.now = now;
        request.idempotency = request.idempotency.map(|idempotency| Idempotency {
            since,
            ..idempotency
        });
        request
    };
    let run = async |request| scene.store().push(request).await;
    assert!(run(push(1, at(0), at(10))).await.expect("pushed").changed);
    assert!(
        !run(push(1, at(10), at(20)))
            .await
            .expect("a repeat")
            .changed
    );
    assert_eq!(
        refused(run(push(2, at(10), at(20))).await),
        Rejection::IdempotencyConflict
    );
    // A millisecond later it is another push, with another body, and the one that counts now.
    assert!(run(push(2, at(11), at(21))).await.expect("pushed").changed);
    assert!(
        !run(push(2, at(21), at(30)))
            .await
            .expect("a repeat")
            .changed
    );
    assert_eq!(
        refused(run(push(1, at(0), at(30))).await),
        Rejection::IdempotencyConflict
    );
    assert_eq!(scene.records(&acme(), &a).await.len(), 2);
}

/// A refusal of the whole push leaves the key free.
pub async fn only_answers_are_kept(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, _]) = ready(fresh).await;
    let mut moved = scene.push_request(&acme(), &a, vec![a.record(&acme(), "one", 1, b"x")]);
    moved.if_head = Some(5);
    let mut rejected = scene.push_request(&acme(), &a, vec![a.record(&acme(), "one", 9, b"x")]);
    rejected.atomic = true;
    let own = StorageKey::own(&member("sam"));
    let unkeyed = scene.push_request(&own, &a, Vec::new());
    for (number, request) in [moved, rejected, unkeyed].into_iter().enumerate() {
        let body = u8::try_from(number).expect("few");
        let refusal = refused(scene.store().push(keyed(request, "k", body)).await);
        assert_ne!(refusal, Rejection::IdempotencyConflict, "request {number}");
    }
    let good = scene.push_request(&acme(), &a, vec![a.record(&acme(), "one", 1, b"x")]);
    let pushed = scene
        .store()
        .push(keyed(good, "k", 9))
        .await
        .expect("pushed");
    assert!(pushed.changed);
}

/// Whoever's they are; those that are left still answer.
pub async fn old_keys_are_dropped_a_few_at_a_time(fresh: Fresh<dyn SweepStore>) {
    let (scene, [a, _]) = ready(fresh).await;
    let request = |number: u8| {
        let record = a.record(&acme(), &format!("r{number}"), 1, b"x");
        let request = scene.push_request(&acme(), &a, vec![record]);
        let mut request = keyed(request, &format!("k{number}"), number);
        request.now = at(u64::from(number));
        request
    };
    let drop = async |before: u64, limit: usize| {
        let dropped = scene.store().drop_idempotency(at(before), limit).await;
        dropped.expect("answered")
    };
    assert_eq!(drop(99, 9).await, 0);
    for number in 0..8 {
        scene.store().push(request(number)).await.expect("pushed");
    }
    assert_eq!(drop(0, 9).await, 0);
    assert_eq!(drop(5, 2).await, 2);
    assert_eq!(drop(5, 2).await, 2);
    assert_eq!(drop(5, 2).await, 1);
    assert_eq!(drop(5, 2).await, 0);
    // A key that is gone lets another body through; one that is there does not.
    for number in 0..8 {
        let mut other = request(number);
        if let Some(idempotency) = &mut other.idempotency {
            idempotency.body = [99; 32];
        }
        let told = scene.store().push(other).await;
        if number < 5 {
            assert!(!told.expect("the same content").changed);
        } else {
            assert_eq!(
                refused(told),
                Rejection::IdempotencyConflict,
                "key {number}"
            );
        }
    }
}
