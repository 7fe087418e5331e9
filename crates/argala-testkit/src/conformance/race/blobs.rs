//! Uploading, deleting and sweeping at the same time.

use std::collections::BTreeSet;

use argala_core::{
    Fault, Rejection,
    ports::{
        SweepStore,
        store::{Abandoned, Committed, ForgetBlob, ReserveBlob, Reserved, Revoke},
    },
};
use argala_wire::blobs::BlobPolicy;

use super::{Start, all};
use crate::{
    TestDevice, blob_id,
    conformance::{
        Fresh,
        store::{Scene, acme, at, ttl},
    },
    device_id,
};

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, TestDevice) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    (scene, device)
}

async fn charged(scene: &Scene) -> u64 {
    scene.counters(&acme()).await.blob_bytes
}

/// The others are told whether theirs is the same, and their bytes are given back.
pub async fn of_many_uploads_of_one_blob_one_is_live(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    for round in 0..6 {
        let id = blob_id(&format!("blob{round}"));
        let start = Start::of(10);
        let tasks = (0..10_u8).map(|number| {
            let request = scene.reserve_request(&acme(), &a, &id, 10);
            let commit = scene.commit_request(&request, number % 2);
            let store = scene.handle();
            start.spawn(async move {
                match store.reserve_blob(request).await.expect("reserved") {
                    Reserved::Exists(blob) if blob.sha256 == commit.sha256 => Committed::Same(blob),
                    Reserved::Exists(_) => Committed::Differs,
                    Reserved::Pending => store.commit_blob(commit).await.expect("committed"),
                }
            })
        });
        let told = all(tasks.collect()).await;
        let live: Vec<_> = told
            .iter()
            .filter_map(|committed| match committed {
                Committed::Live(blob) => Some(blob),
                _ => None,
            })
            .collect();
        assert_eq!(live.len(), 1, "round {round}");
        for (number, committed) in told.iter().enumerate() {
            let same = live[0].sha256[0] == u8::try_from(number % 2).expect("small");
            match committed {
                Committed::Live(_) => {}
                Committed::Same(blob) => assert!(same && blob == live[0]),
                Committed::Differs => assert!(!same),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            scene.blob(&acme(), &id, at(3_000)).await.as_ref(),
            Some(live[0])
        );
        assert_eq!(charged(&scene).await, 10 * (round + 1));
    }
}

/// Exactly as many as there is room for.
pub async fn blob_bytes_stop_at_their_quota_under_many_uploads(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let start = Start::of(24);
    let tasks = (0..24).map(|number| {
        let request = ReserveBlob {
            max_bytes_per_graph: 105,
            ..scene.reserve_request(&acme(), &a, &blob_id(&format!("blob{number}")), 10)
        };
        let commit = scene.commit_request(&request, 1);
        let store = scene.handle();
        start.spawn(async move {
            match store.reserve_blob(request).await {
                Ok(_) => {
                    let committed = store.commit_blob(commit).await.expect("committed");
                    assert!(matches!(committed, Committed::Live(_)));
                    true
                }
                Err(Fault::Rejected(Rejection::QuotaExceeded { limit, used, .. })) => {
                    assert_eq!((limit, used), (105, 100));
                    false
                }
                Err(other) => panic!("{other:?}"),
            }
        })
    });
    let stored = all(tasks.collect()).await;
    assert_eq!(stored.iter().filter(|stored| **stored).count(), 10);
    assert_eq!(charged(&scene).await, 100);
}

/// Either it was live before, or it never is.
pub async fn a_commit_and_a_revocation_leave_no_blob_of_the_revoked(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let mut stored = 0;
    for round in 0..12 {
        let name = format!("gone{round}");
        let gone = scene.device("sam", &name).await;
        let request = scene.reserve_request(&acme(), &gone, &blob_id(&name), 10);
        scene.reserve(&request).await;
        let commit = scene.commit_request(&request, 1);
        let revoke = Revoke {
            by: a.to_ref(),
            device_id: device_id(&name),
            now: at(900),
        };
        let start = Start::of(2);
        let (one, other) = (scene.handle(), scene.handle());
        let committing = start.spawn(async move { one.commit_blob(commit).await });
        let revoking = start.spawn(async move { other.revoke(revoke).await });
        let committed = committing.await.expect("no panic").expect("answered");
        revoking.await.expect("no panic").expect("revoked");
        let read = scene.blob(&acme(), &request.id, at(3_000)).await;
        match committed {
            Committed::Live(blob) => {
                assert_eq!(read, Some(blob));
                stored += 1;
            }
            Committed::Revoked => assert_eq!(read, None),
            other => panic!("{other:?}"),
        }
        assert_eq!(charged(&scene).await, 10 * stored, "round {round}");
    }
}

/// Never both.
pub async fn an_abandoned_upload_is_live_or_gone(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let mut stored = 0;
    for round in 0..12 {
        let request = scene.reserve_request(&acme(), &a, &blob_id(&format!("blob{round}")), 10);
        scene.reserve(&request).await;
        let (commit, object) = (scene.commit_request(&request, 1), request.object.clone());
        let start = Start::of(3);
        let stores = [scene.handle(), scene.handle(), scene.handle()];
        let [one, other, third] = stores;
        let committing = start.spawn(async move { one.commit_blob(commit).await });
        let again = object.clone();
        let abandoning = start.spawn(async move { other.abandon_blob(&acme(), &object).await });
        let too = start.spawn(async move { third.abandon_blob(&acme(), &again).await });
        let committed = committing.await.expect("no panic").expect("answered");
        let told = [
            abandoning.await.expect("no panic").expect("answered"),
            too.await.expect("no panic").expect("answered"),
        ];
        let read = scene.blob(&acme(), &request.id, at(3_000)).await;
        match committed {
            Committed::Live(blob) => {
                assert_eq!(read, Some(blob));
                assert_eq!(told, [Abandoned::Live; 2], "its object must stay");
                stored += 1;
            }
            Committed::Gone => {
                assert_eq!(read, None);
                assert_eq!(told, [Abandoned::LetGo; 2]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(charged(&scene).await, 10 * stored, "round {round}");
    }
}

/// And of many who drop its row, one is told so.
pub async fn of_many_who_delete_one_blob_one_does(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    for round in 0..6 {
        let request = scene.reserve_request(&acme(), &a, &blob_id(&format!("blob{round}")), 10);
        let live = scene.upload(&request, 1).await;
        let start = Start::of(8);
        let tasks = (0..8).map(|_| {
            let store = scene.handle();
            let forget = ForgetBlob {
                key: acme(),
                id: live.id.clone(),
                by: a.to_ref(),
                now: at(2_002),
            };
            start.spawn(async move { store.forget_blob(forget).await.expect("answered") })
        });
        let told = all(tasks.collect()).await;
        let first: Vec<_> = told.into_iter().flatten().collect();
        assert_eq!(first, [live], "round {round}");
        assert_eq!(charged(&scene).await, 0);
        let start = Start::of(8);
        let tasks = (0..8).map(|_| {
            let (store, object) = (scene.handle(), request.object.clone());
            start.spawn(async move { store.drop_blob(&acme(), &object).await.expect("answered") })
        });
        let dropped = all(tasks.collect()).await;
        assert_eq!(dropped.iter().filter(|dropped| **dropped).count(), 1);
    }
}

/// Each is told what it marked itself, while others upload and delete.
pub async fn sweeps_at_once_give_bytes_back_once(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let mut objects = BTreeSet::new();
    for number in 0..12 {
        let id = blob_id(&format!("blob{number}"));
        let request = ReserveBlob {
            policy: BlobPolicy::Expire,
            expires_at: ttl(4_000),
            ..scene.reserve_request(&acme(), &a, &id, 10)
        };
        objects.insert(request.object.clone());
        if number % 2 == 0 {
            scene.upload(&request, 1).await;
        } else {
            scene.reserve(&request).await;
        }
    }
    let kept = scene
        .upload(&scene.reserve_request(&acme(), &a, &blob_id("kept"), 7), 1)
        .await;
    let start = Start::of(6);
    let tasks = (0..6).map(|_| {
        let store = scene.handle();
        start.spawn(async move {
            let mut told = Vec::new();
            loop {
                let doomed = store.doom_blobs(at(5_000), at(5_000), at(0), 3).await;
                let doomed = doomed.expect("answered");
                if doomed.is_empty() {
                    return told;
                }
                told.extend(doomed.into_iter().map(|doomed| doomed.object));
                assert!(told.len() <= 13, "it is told the same again and again");
            }
        })
    });
    let told: Vec<_> = all(tasks.collect()).await.concat();
    assert_eq!(told.len(), objects.len(), "each is told to one sweep");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), objects);
    assert_eq!(charged(&scene).await, 7);
    assert_eq!(scene.blob(&acme(), &kept.id, at(5_000)).await, Some(kept));
}
