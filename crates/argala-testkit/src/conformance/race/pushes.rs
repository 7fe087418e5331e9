//! Pushing at the same time.

use std::{collections::BTreeSet, sync::Arc};

use argala_core::{
    Fault, Outcome, Rejection,
    ports::{
        SweepStore,
        store::{Idempotency, Push, PushOutcome},
    },
};
use argala_wire::{
    StorageKey, Timestamp,
    limits::Quotas,
    records::{PushReason, PushRecord, PushResult},
};

use super::{Start, all};
use crate::{
    TestDevice,
    conformance::{
        Fresh,
        store::{Scene, acme},
    },
    group,
};

/// A graph whose key `count` devices hold.
async fn crowd(fresh: Fresh<dyn SweepStore>, count: usize) -> (Arc<Scene>, Vec<TestDevice>) {
    let scene = Scene::new(fresh);
    let mut devices = Vec::new();
    for number in 0..count {
        devices.push(scene.device(&format!("m{number}"), "x").await);
    }
    scene
        .rotate(&acme(), 1, &devices.iter().collect::<Vec<_>>())
        .await;
    (Arc::new(scene), devices)
}

/// Sends all of them at once.
async fn at_once(scene: &Scene, requests: Vec<Push>) -> Vec<Outcome<PushOutcome>> {
    let start = Start::of(requests.len());
    let tasks = requests.into_iter().map(|request| {
        let store = scene.handle();
        start.spawn(async move { store.push(request).await })
    });
    all(tasks.collect()).await
}

fn results(outcomes: Vec<Outcome<PushOutcome>>) -> Vec<Vec<PushResult>> {
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|outcome| outcome.expect("answered").answer.results)
        .collect()
}

fn is_accepted(result: &&PushResult) -> bool {
    matches!(result, PushResult::Accepted { .. })
}

/// Exactly as many as there is room for.
pub async fn records_stop_at_their_quota_under_many_pushers(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 16).await;
    let request = |(number, device): (usize, &TestDevice)| {
        let ids = (0..3).map(|of| format!("r{number} {of}"));
        let records = ids.map(|id| device.record(&acme(), &id, 1, b"x"));
        Push {
            quotas: Quotas {
                max_records_per_graph: 20,
                ..Quotas::default()
            },
            ..scene.push_request(&acme(), device, records.collect())
        }
    };
    let requests = devices.iter().enumerate().map(request).collect();
    let told: Vec<PushResult> = results(at_once(&scene, requests).await).concat();
    let accepted = told.iter().filter(is_accepted).count();
    assert_eq!(accepted, 20);
    for result in &told {
        if let PushResult::Rejected { reason, .. } = result {
            assert_eq!(*reason, PushReason::QuotaRecords { limit: 20 });
        }
    }
    assert_eq!(scene.counters(&acme()).await.records, 20);
    let seqs: BTreeSet<u64> = told
        .iter()
        .filter_map(|result| match result {
            PushResult::Accepted { seq, .. } => Some(*seq),
            _ => None,
        })
        .collect();
    assert!(seqs.into_iter().eq(1..=20), "what is refused takes no seq");
}

/// The same of bytes.
pub async fn bytes_stop_at_their_quota_under_many_pushers(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 16).await;
    let request = |(number, device): (usize, &TestDevice)| {
        let records =
            (0..3).map(|of| device.record(&acme(), &format!("r{number} {of}"), 1, &[1; 7]));
        Push {
            quotas: Quotas {
                max_ciphertext_bytes_per_graph: 100,
                ..Quotas::default()
            },
            ..scene.push_request(&acme(), device, records.collect())
        }
    };
    let requests = devices.iter().enumerate().map(request).collect();
    let told: Vec<PushResult> = results(at_once(&scene, requests).await).concat();
    assert_eq!(told.iter().filter(is_accepted).count(), 14);
    assert_eq!(scene.counters(&acme()).await.ciphertext_bytes, 98);
}

/// The others are told its seq.
pub async fn of_many_who_expect_nothing_one_is_first(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 12).await;
    for round in 0..6 {
        let id = format!("r{round}");
        let request = |device: &TestDevice| {
            let record = PushRecord {
                expect: Some(0),
                ..device.record(&acme(), &id, 1, b"x")
            };
            scene.push_request(&acme(), device, vec![record])
        };
        let requests = devices.iter().map(request).collect();
        let told: Vec<PushResult> = results(at_once(&scene, requests).await).concat();
        let seq = round + 1;
        assert_eq!(told.iter().filter(is_accepted).count(), 1, "round {round}");
        for result in &told {
            match result {
                PushResult::Accepted { seq: got, .. } => assert_eq!(*got, seq),
                PushResult::Rejected { reason, .. } => {
                    assert_eq!(*reason, PushReason::Conflict { seq });
                }
                PushResult::Acceptable { .. } => panic!("not an atomic push"),
            }
        }
    }
    assert_eq!(scene.counters(&acme()).await.records, 6);
}

/// The others are told the head that it made.
pub async fn of_many_who_name_the_head_one_is_first(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 12).await;
    for round in 0..6 {
        let request = |(number, device): (usize, &TestDevice)| Push {
            if_head: Some(round),
            ..scene.push_request(
                &acme(),
                device,
                vec![device.record(&acme(), &format!("r{round} {number}"), 1, b"x")],
            )
        };
        let requests = devices.iter().enumerate().map(request).collect();
        let mut first = 0;
        for outcome in at_once(&scene, requests).await {
            match outcome {
                Ok(pushed) => {
                    first += 1;
                    assert_eq!(pushed.answer.head, round + 1);
                }
                Err(Fault::Rejected(rejection)) => {
                    assert_eq!(rejection, Rejection::HeadMoved { head: round + 1 });
                }
                Err(Fault::Store(error)) => panic!("{error:?}"),
            }
        }
        assert_eq!(first, 1, "round {round}");
    }
}

/// All are told the same; it is written once, though it would conflict with itself.
pub async fn the_same_key_at_once_is_one_push(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 1).await;
    let device = &devices[0];
    for round in 0..6 {
        let records = ["a", "b"].map(|name| PushRecord {
            expect: Some(0),
            ..device.record(&acme(), &format!("{name}{round}"), 1, b"x")
        });
        let push = |body: u8| Push {
            idempotency: Some(Idempotency {
                key: format!("k{round}"),
                body: [body; 32],
                since: Timestamp::from_millis(0),
            }),
            if_head: Some(round * 2),
            ..scene.push_request(&acme(), device, records.to_vec())
        };
        let outcomes = at_once(&scene, (0..10).map(|_| push(1)).collect()).await;
        let mut changed = 0;
        for outcome in outcomes {
            let outcome = outcome.expect("answered as the first");
            changed += usize::from(outcome.changed);
            assert_eq!(
                (outcome.answer.head, outcome.answer.accepted),
                (round * 2 + 2, 2)
            );
        }
        assert_eq!(changed, 1, "round {round}");
        for outcome in at_once(&scene, (0..3).map(|_| push(2)).collect()).await {
            assert!(matches!(
                outcome,
                Err(Fault::Rejected(Rejection::IdempotencyConflict))
            ));
        }
    }
    assert_eq!(scene.counters(&acme()).await.records, 12);
}

/// Whoever shares a transaction with whom: each is told what it would have been told alone.
pub async fn neighbours_do_not_matter(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 24).await;
    scene.revoke(&devices[0], &devices[0]).await;
    let stranger = TestDevice::new("m1", "stranger");
    let late = scene.device("m2", "late").await;
    for round in 0..4 {
        let mut requests = Vec::new();
        for (number, device) in devices.iter().enumerate().skip(1) {
            let id = format!("r{round} {number}");
            let record = |epoch: u64| device.record(&acme(), &id, epoch, b"x");
            let mut request = scene.push_request(&acme(), device, vec![record(1)]);
            match number % 6 {
                1 => request.records.extend(
                    scene
                        .push_request(
                            &acme(),
                            device,
                            vec![device.record(&acme(), "bad", 9, b"x")],
                        )
                        .records,
                ),
                2 => {
                    request.records = scene.push_request(&acme(), device, vec![record(9)]).records;
                    request.atomic = true;
                }
                3 => request.if_head = Some(u64::MAX),
                _ => {}
            }
            requests.push(request);
        }
        for device in [&devices[0], &stranger, &late] {
            let record = device.record(&acme(), &format!("other {round}"), 1, b"x");
            requests.push(scene.push_request(&acme(), device, vec![record]));
        }
        let mut outcomes = at_once(&scene, requests).await;
        let others = outcomes.split_off(devices.len() - 1);
        for (number, outcome) in outcomes.into_iter().enumerate() {
            let number = number + 1;
            let (good, bad) = match outcome {
                Ok(pushed) => (pushed.answer.accepted, pushed.answer.rejected),
                Err(Fault::Rejected(Rejection::PushRejected { .. })) => (0, 100),
                Err(Fault::Rejected(Rejection::HeadMoved { .. })) => (0, 200),
                Err(other) => panic!("{other:?}"),
            };
            let wanted = match number % 6 {
                1 => (1, 1),
                2 => (0, 100),
                3 => (0, 200),
                _ => (1, 0),
            };
            assert_eq!((good, bad), wanted, "pusher {number}");
        }
        let [revoked, unknown, keyless] = others.try_into().expect("three others");
        assert!(matches!(
            revoked,
            Err(Fault::Rejected(Rejection::DeviceRevoked))
        ));
        assert!(matches!(
            unknown,
            Err(Fault::Rejected(Rejection::DeviceUnregistered))
        ));
        let told = keyless.expect("answered").answer.results;
        assert!(matches!(
            &told[..],
            [PushResult::Rejected {
                reason: PushReason::NotHolder,
                ..
            }]
        ));
    }
    let accepted = (1..24)
        .filter(|number| number % 6 != 2 && number % 6 != 3)
        .count() as u64;
    assert_eq!(scene.counters(&acme()).await.records, 4 * accepted);
}

/// At every moment that can be seen.
pub async fn a_push_that_is_dropped_is_whole_or_absent(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 1).await;
    let device = &devices[0];
    for round in 0..60 {
        let records = (0..5).map(|of| device.record(&acme(), &format!("{round}/{of}"), 1, b"x"));
        let request = scene.push_request(&acme(), device, records.collect());
        let store = scene.handle();
        let task = tokio::spawn(async move { store.push(request).await.map(|_| ()) });
        // Sooner or later, so that it is cut at different points.
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let acknowledged = matches!(task.await, Ok(Ok(())));
        let mut rounds = std::collections::BTreeMap::new();
        for record in scene.records(&acme(), device).await {
            let (of, _) = record.id.as_str().split_once('/').expect("two parts");
            *rounds.entry(of.to_owned()).or_insert(0) += 1;
        }
        assert!(rounds.values().all(|count| *count == 5), "{rounds:?}");
        assert!(!acknowledged || rounds.contains_key(&format!("{round}")));
        // What is dropped may still be on its way: only what one look sees belongs together.
        scene.recount(&acme()).await;
    }
}

/// Pushers of many graphs, in every order: all get through.
pub async fn graphs_do_not_wait_for_each_other_for_ever(fresh: Fresh<dyn SweepStore>) {
    let (scene, devices) = crowd(fresh, 6).await;
    let keys: Vec<StorageKey> = (0..6)
        .map(|number| StorageKey::group(&group(&format!("g{number}"))))
        .collect();
    for key in &keys {
        scene
            .rotate(key, 1, &devices.iter().collect::<Vec<_>>())
            .await;
    }
    let start = Start::of(devices.len());
    let tasks = devices.iter().enumerate().map(|(number, device)| {
        let (scene, device, keys) = (Arc::clone(&scene), device.clone(), keys.clone());
        start.spawn(async move {
            for round in 0..5 {
                for step in 0..keys.len() {
                    let key = &keys[(number + step * (1 + number % 5)) % keys.len()];
                    let id = format!("{number} {round} {step}");
                    scene.fill(key, &device, 1, &[&id]).await;
                }
            }
        })
    });
    all(tasks.collect()).await;
    let mut records = 0;
    for key in &keys {
        let counters = scene.counters(key).await;
        let graph = scene
            .store()
            .graph(key)
            .await
            .expect("answered")
            .expect("there");
        assert_eq!(graph.head, counters.records);
        records += counters.records;
    }
    assert_eq!(records, 6 * 5 * 6);
}
