//! What a sweep is told is due.

use argala_core::ports::{
    ForgetReason, ObjectKey, SweepStore,
    store::{Blob, Doomed, ForgetBlob, ReserveBlob},
};
use argala_wire::{Timestamp, blobs::BlobPolicy};

use super::{Scene, acme, at, ttl};
use crate::{TestDevice, blob_id, conformance::Fresh};

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, TestDevice) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    (scene, device)
}

async fn expiring(scene: &Scene, by: &TestDevice, name: &str, expires: Option<Timestamp>) -> Blob {
    let request = ReserveBlob {
        policy: if expires.is_some() {
            BlobPolicy::Expire
        } else {
            BlobPolicy::Keep
        },
        expires_at: expires,
        ..scene.reserve_request(&acme(), by, &blob_id(name), 10)
    };
    scene.upload(&request, 1).await
}

async fn pending(scene: &Scene, by: &TestDevice, name: &str, since: Timestamp) -> ReserveBlob {
    let request = ReserveBlob {
        now: since,
        ..scene.reserve_request(&acme(), by, &blob_id(name), 10)
    };
    scene.reserve(&request).await;
    request
}

/// What is due, in the order of the objects: the port promises none.
async fn doom(
    scene: &Scene,
    now: Timestamp,
    pending_before: Timestamp,
    forgetting_before: Timestamp,
    limit: usize,
) -> Vec<Doomed> {
    let doomed = scene
        .store()
        .doom_blobs(now, pending_before, forgetting_before, limit);
    let mut doomed = doomed.await.expect("answered");
    assert!(doomed.len() <= limit);
    doomed.sort_by(|one, other| one.object.cmp(&other.object));
    doomed
}

const NEVER: Timestamp = Timestamp::from_millis(0);

async fn charged(scene: &Scene) -> u64 {
    scene.counters(&acme()).await.blob_bytes
}

/// With its reason; its bytes are given back once.
pub async fn what_is_due_is_marked_and_told_once(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let expired = expiring(&scene, &a, "expired", ttl(5_000)).await;
    let orphan = pending(&scene, &a, "orphan", at(1_000)).await;
    assert_eq!(charged(&scene).await, 20);
    let doomed = doom(&scene, at(5_000), at(1_001), NEVER, 9).await;
    let told = |object: &ObjectKey, reason| Doomed {
        graph: acme(),
        object: object.clone(),
        reason,
    };
    let wanted = [
        told(&expired.object, ForgetReason::Expired),
        told(&orphan.object, ForgetReason::Orphaned),
    ];
    assert_eq!(doomed, wanted);
    assert_eq!(charged(&scene).await, 0);
    // Whoever was told is at work on them.
    assert!(
        doom(&scene, at(6_000), at(5_000), NEVER, 9)
            .await
            .is_empty()
    );
    let late = scene.commit(&orphan, 1).await;
    assert_eq!(late, argala_core::ports::store::Committed::Gone);
    assert_eq!(charged(&scene).await, 0);
}

/// Not before its time, not without one, not while it may still be finished.
pub async fn what_is_not_due_stays(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let kept = expiring(&scene, &a, "kept", None).await;
    let later = expiring(&scene, &a, "later", ttl(5_001)).await;
    let uploading = pending(&scene, &a, "uploading", at(1_000)).await;
    assert!(
        doom(&scene, at(5_000), at(1_000), NEVER, 9)
            .await
            .is_empty()
    );
    assert_eq!(charged(&scene).await, 30);
    for blob in [kept, later] {
        let read = scene.blob(&acme(), &blob.id, at(5_000)).await;
        assert_eq!(read, Some(blob));
    }
    let finished = scene.commit(&uploading, 1).await;
    assert!(matches!(
        finished,
        argala_core::ports::store::Committed::Live(_)
    ));
}

/// Whoever marked it may have died.
pub async fn what_was_marked_long_ago_is_told_again(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let blob = expiring(&scene, &a, "deleted", None).await;
    let request = ForgetBlob {
        key: acme(),
        id: blob.id.clone(),
        by: a.to_ref(),
        now: at(3_000),
    };
    scene.store().forget_blob(request).await.expect("answered");
    let lost = pending(&scene, &a, "lost", at(1_000)).await;
    scene
        .store()
        .abandon_blob(&acme(), &lost.object)
        .await
        .expect("answered");
    let expired = expiring(&scene, &a, "expired", ttl(4_000)).await;
    let marked = doom(&scene, at(4_000), NEVER, NEVER, 9).await;
    assert_eq!(marked.len(), 1);

    let requested = Doomed {
        graph: acme(),
        object: blob.object.clone(),
        reason: ForgetReason::Requested,
    };
    let told = |doomed: &[Doomed], object| doomed.iter().any(|doomed| doomed.object == object);
    let early = doom(&scene, at(5_000), NEVER, at(3_000), 9).await;
    assert!(!told(&early, blob.object.clone()) && !told(&early, expired.object.clone()));
    for _ in 0..2 {
        let some = doom(&scene, at(5_000), NEVER, at(3_001), 9).await;
        assert!(some.contains(&requested), "{some:?}");
        assert!(!told(&some, expired.object.clone()));
    }
    let all = doom(&scene, at(5_000), NEVER, at(1 << 40), 9).await;
    assert_eq!(all.len(), 3);
    assert!(all.contains(&requested) && all.contains(&marked[0]));
    assert!(told(&all, lost.object.clone()));
    for doomed in &all {
        assert!(
            scene
                .store()
                .drop_blob(&acme(), &doomed.object)
                .await
                .expect("answered")
        );
    }
    assert!(
        doom(&scene, at(5_000), NEVER, at(1 << 40), 9)
            .await
            .is_empty()
    );
    assert_eq!(charged(&scene).await, 0);
}

/// A limit bounds what is told, and nothing is left out for ever.
pub async fn a_few_at_a_time_get_through(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    for number in 0..7 {
        expiring(&scene, &a, &format!("expired{number}"), ttl(4_000)).await;
        pending(&scene, &a, &format!("orphan{number}"), at(1_000)).await;
    }
    let mut dropped = 0;
    for _ in 0..40 {
        let doomed = doom(&scene, at(5_000), at(2_000), at(6_000), 3).await;
        if doomed.is_empty() {
            break;
        }
        for doomed in doomed {
            dropped += u64::from(
                scene
                    .store()
                    .drop_blob(&acme(), &doomed.object)
                    .await
                    .expect("answered"),
            );
        }
    }
    assert_eq!(dropped, 14);
    assert_eq!(charged(&scene).await, 0);
    assert!(
        doom(&scene, at(5_000), at(2_000), at(6_000), 0)
            .await
            .is_empty()
    );
}

/// Not while it is pending or live; whoever is told `true` was the one.
pub async fn a_row_is_dropped_once_and_only_when_marked(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let pending = pending(&scene, &a, "pending", at(1_000)).await;
    let live = expiring(&scene, &a, "live", None).await;
    let drop = async |object: &ObjectKey| {
        scene
            .store()
            .drop_blob(&acme(), object)
            .await
            .expect("answered")
    };
    assert!(!drop(&pending.object).await && !drop(&live.object).await);
    assert!(!drop(&scene.object()).await, "one that never was");
    assert_eq!(charged(&scene).await, 20);
    assert_eq!(
        scene.blob(&acme(), &live.id, at(3_000)).await.as_ref(),
        Some(&live)
    );
    scene.forget(&acme(), &a, &live.id).await;
    scene
        .store()
        .abandon_blob(&acme(), &pending.object)
        .await
        .expect("answered");
    for object in [&pending.object, &live.object] {
        assert!(drop(object).await);
        assert!(!drop(object).await);
    }
    assert_eq!(charged(&scene).await, 0);
}
