//! Quotas of records and bytes.

use argala_core::ports::{SweepStore, store::Push};
use argala_wire::{
    limits::Quotas,
    records::{PushReason, PushRecord, PushResult},
};

use super::{Scene, acme};
use crate::{TestDevice, conformance::Fresh};

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, TestDevice) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    (scene, device)
}

async fn push(
    scene: &Scene,
    by: &TestDevice,
    quotas: Quotas,
    records: Vec<PushRecord>,
) -> Vec<Result<u64, PushReason>> {
    let request = Push {
        quotas,
        ..scene.push_request(&acme(), by, records)
    };
    let pushed = scene.store().push(request).await.expect("answered");
    scene.counters(&acme()).await;
    let told = |result| match result {
        PushResult::Accepted { seq, .. } => Ok(seq),
        PushResult::Rejected { reason, .. } => Err(reason),
        PushResult::Acceptable { .. } => panic!("not an atomic push"),
    };
    pushed.answer.results.into_iter().map(told).collect()
}

/// Exactly at it; a replacement and a tombstone need no place; a deleted record frees one.
pub async fn records_stop_at_their_quota(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let quotas = Quotas {
        max_records_per_graph: 3,
        ..Quotas::default()
    };
    let record = |id: &str, content: &str| a.record(&acme(), id, 1, content.as_bytes());
    let full = Err(PushReason::QuotaRecords { limit: 3 });
    let records = ["a", "b", "c", "d"].map(|id| record(id, "one"));
    let told = push(&scene, &a, quotas, records.to_vec()).await;
    assert_eq!(told, [Ok(1), Ok(2), Ok(3), full]);
    let records = vec![
        record("d", "one"),
        record("a", "two"),
        a.tombstone(&acme(), "b", 1),
        record("d", "one"),
    ];
    let mut records = records;
    // Each id once in a push.
    let last = records.pop().expect("four");
    assert_eq!(
        push(&scene, &a, quotas, records).await,
        [full, Ok(4), Ok(5)]
    );
    assert_eq!(push(&scene, &a, quotas, vec![last]).await, [Ok(6)]);
    assert_eq!(
        push(&scene, &a, quotas, vec![record("b", "back")]).await,
        [full]
    );
    assert_eq!(scene.counters(&acme()).await.records, 3);
}

/// Exactly at it; what is refused leaves room for what is smaller.
pub async fn bytes_stop_at_their_quota(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let quotas = Quotas {
        max_ciphertext_bytes_per_graph: 20,
        ..Quotas::default()
    };
    let record = |id: &str, size: usize| a.record(&acme(), id, 1, &vec![9; size]);
    let full = Err(PushReason::QuotaBytes { limit: 20 });
    let records = vec![
        record("a", 12),
        record("b", 9),
        record("c", 8),
        record("d", 1),
    ];
    let told = push(&scene, &a, quotas, records).await;
    assert_eq!(told, [Ok(1), full, Ok(2), full]);
    assert_eq!(scene.counters(&acme()).await.ciphertext_bytes, 20);
    let told = push(&scene, &a, quotas, vec![record("a", 13), record("c", 7)]).await;
    assert_eq!(told, [full, Ok(3)]);
    assert_eq!(
        push(&scene, &a, quotas, vec![record("a", 13)]).await,
        [Ok(4)]
    );
    assert_eq!(scene.counters(&acme()).await.ciphertext_bytes, 20);
}

/// Even where a quota was lowered beneath what is there.
pub async fn what_shrinks_fits_a_full_graph(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let record = |id: &str, size: usize| a.record(&acme(), id, 1, &vec![9; size]);
    let filled = ["a", "b", "c"].map(|id| record(id, 10));
    push(&scene, &a, Quotas::default(), filled.to_vec()).await;
    let quotas = Quotas {
        max_records_per_graph: 1,
        max_ciphertext_bytes_per_graph: 5,
        ..Quotas::default()
    };
    let (records, bytes) = (
        Err(PushReason::QuotaRecords { limit: 1 }),
        Err(PushReason::QuotaBytes { limit: 5 }),
    );
    let tidied = vec![
        record("a", 9),
        record("b", 11),
        a.tombstone(&acme(), "c", 1),
        record("d", 0),
    ];
    let mut tidied = tidied;
    tidied[3].deleted = true;
    tidied.push(record("e", 1));
    let told = push(&scene, &a, quotas, tidied).await;
    assert_eq!(told, [Ok(4), bytes, Ok(5), records, records]);
}

/// Live records and tombstones together.
pub async fn tombstones_stop_at_twice_the_quota(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let quotas = Quotas {
        max_records_per_graph: 2,
        ..Quotas::default()
    };
    let full = Err(PushReason::QuotaRecords { limit: 2 });
    let dead = |id: &str| a.tombstone(&acme(), id, 1);
    let told = push(
        &scene,
        &a,
        quotas,
        ["a", "b", "c", "d", "e"].map(dead).to_vec(),
    )
    .await;
    assert_eq!(told, [Ok(1), Ok(2), Ok(3), Ok(4), full]);
    let alive = |id: &str| a.record(&acme(), id, 1, b"x");
    let told = push(&scene, &a, quotas, ["e", "a", "b", "c"].map(alive).to_vec()).await;
    assert_eq!(told, [full, Ok(5), Ok(6), full]);
    let counters = scene.counters(&acme()).await;
    assert_eq!((counters.records, counters.tombstones), (2, 2));
}
