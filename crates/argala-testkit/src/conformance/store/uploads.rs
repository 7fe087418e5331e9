//! The rows of blobs, from reserved to forgotten.

use argala_core::{
    Quota, Rejection,
    ports::{
        SweepStore,
        store::{Abandoned, Blob, CommitBlob, Committed, ForgetBlob, ReserveBlob, Reserved},
    },
};
use argala_wire::{StorageKey, blobs::BlobPolicy};

use super::{Scene, acme, at, refused, ttl};
use crate::{TestDevice, blob_id, conformance::Fresh, group, member};

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, TestDevice) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    (scene, device)
}

async fn charged(scene: &Scene) -> u64 {
    scene.counters(&acme()).await.blob_bytes
}

/// Charged from the beginning, seen only while it is live, and every field kept.
pub async fn an_upload_is_charged_then_live_then_forgotten(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let id = blob_id("photo");
    for (policy, expires_at) in [
        (BlobPolicy::Keep, None),
        (BlobPolicy::Expire, ttl(90_000)),
        (BlobPolicy::Deliver, ttl(80_000)),
    ] {
        let request = ReserveBlob {
            policy,
            expires_at,
            ..scene.reserve_request(&acme(), &a, &id, 300)
        };
        scene.reserve(&request).await;
        assert_eq!(charged(&scene).await, 300);
        assert_eq!(scene.blob(&acme(), &id, at(3_000)).await, None);
        let wanted = Blob {
            graph: acme(),
            id: id.clone(),
            object: request.object.clone(),
            size: 300,
            sha256: [5; 32],
            policy,
            expires_at,
            by: a.to_ref(),
        };
        assert_eq!(
            scene.commit(&request, 5).await,
            Committed::Live(wanted.clone())
        );
        assert_eq!(
            scene.blob(&acme(), &id, at(3_000)).await.as_ref(),
            Some(&wanted)
        );
        assert_eq!(charged(&scene).await, 300);
        assert_eq!(scene.forget(&acme(), &a, &id).await, Some(wanted));
        assert_eq!(charged(&scene).await, 0);
        assert_eq!(scene.blob(&acme(), &id, at(3_000)).await, None);
        assert_eq!(scene.forget(&acme(), &a, &id).await, None);
        assert_eq!(charged(&scene).await, 0);
    }
    // An empty one is one, too.
    scene
        .upload(&scene.reserve_request(&acme(), &a, &id, 0), 1)
        .await;
    let read = scene.blob(&acme(), &id, at(3_000)).await;
    assert_eq!(read.map(|blob| blob.size), Some(0));
}

/// Whatever size is announced, and be the graph full.
pub async fn a_live_blob_is_told_and_nothing_is_reserved(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let id = blob_id("photo");
    let live = scene
        .upload(&scene.reserve_request(&acme(), &a, &id, 1_000), 1)
        .await;
    for size in [0, 1_000, 5_000, u64::MAX] {
        let request = scene.reserve_request(&acme(), &a, &id, size);
        let told = scene.store().reserve_blob(request.clone()).await;
        assert_eq!(told.expect("answered"), Reserved::Exists(live.clone()));
        assert_eq!(scene.commit(&request, 1).await, Committed::Gone);
    }
    assert_eq!(charged(&scene).await, 1_000);
}

/// The other's bytes are given back, whether they are the same or not.
pub async fn of_two_uploads_the_first_is_live(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let id = blob_id("photo");
    let requests = [1, 2, 3].map(|_| scene.reserve_request(&acme(), &a, &id, 100));
    for (number, request) in requests.iter().enumerate() {
        scene.reserve(request).await;
        assert_eq!(charged(&scene).await, 100 * (number as u64 + 1));
    }
    let Committed::Live(live) = scene.commit(&requests[1], 7).await else {
        panic!("it is the first");
    };
    assert_eq!(
        scene.commit(&requests[0], 7).await,
        Committed::Same(live.clone())
    );
    assert_eq!(charged(&scene).await, 200);
    assert_eq!(scene.commit(&requests[2], 8).await, Committed::Differs);
    assert_eq!(charged(&scene).await, 100);
    for late in [&requests[0], &requests[2]] {
        assert_eq!(scene.commit(late, 7).await, Committed::Gone);
        assert!(
            scene
                .store()
                .drop_blob(&acme(), &late.object)
                .await
                .expect("answered")
        );
    }
    assert_eq!(scene.blob(&acme(), &id, at(3_000)).await, Some(live));
    assert_eq!(charged(&scene).await, 100);
}

/// Once; and only where it is pending.
pub async fn an_abandoned_upload_gives_its_bytes_back(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let pending = scene.reserve_request(&acme(), &a, &blob_id("pending"), 100);
    scene.reserve(&pending).await;
    let live = scene.reserve_request(&acme(), &a, &blob_id("live"), 10);
    scene.upload(&live, 1).await;
    let abandon = async |request: &ReserveBlob| {
        let abandoned = scene.store().abandon_blob(&acme(), &request.object).await;
        abandoned.expect("answered")
    };
    for _ in 0..2 {
        assert_eq!(abandon(&pending).await, Abandoned::LetGo);
        assert_eq!(charged(&scene).await, 10);
    }
    assert_eq!(scene.commit(&pending, 1).await, Committed::Gone);
    assert_eq!(abandon(&live).await, Abandoned::Live);
    assert_eq!(charged(&scene).await, 10);
    assert!(scene.blob(&acme(), &live.id, at(3_000)).await.is_some());
    // Its commit may be asked for again by whoever missed the answer.
    for _ in 0..2 {
        let told = scene.commit(&live, 1).await;
        assert!(matches!(told, Committed::Live(blob) if blob.object == live.object));
        assert_eq!(charged(&scene).await, 10);
    }
    // Once it is let go of as a blob, it is others' to remove.
    let gone = scene.reserve_request(&acme(), &a, &blob_id("gone"), 5);
    scene.upload(&gone, 1).await;
    let forgotten = scene.forget(&acme(), &a, &gone.id).await;
    assert!(forgotten.is_some());
    assert_eq!(abandon(&gone).await, Abandoned::Forgotten);
    let dropped = scene.store().drop_blob(&acme(), &gone.object).await;
    assert!(dropped.expect("answered"), "its row was left for them");
    assert_eq!(abandon(&gone).await, Abandoned::LetGo);
    assert_eq!(charged(&scene).await, 10);
    // One that nobody reserved.
    let unknown = scene.reserve_request(&acme(), &a, &blob_id("unknown"), 100);
    assert_eq!(abandon(&unknown).await, Abandoned::LetGo);
    assert_eq!(scene.commit(&unknown, 1).await, Committed::Gone);
    // A graph that it does not belong to knows nothing of it.
    let (store, elsewhere) = (scene.store(), StorageKey::group(&group("elsewhere")));
    let told = store.abandon_blob(&elsewhere, &live.object).await;
    assert_eq!(told.expect("answered"), Abandoned::LetGo);
    let told = store.drop_blob(&elsewhere, &pending.object).await;
    assert!(!told.expect("answered"));
    let commit = CommitBlob {
        key: elsewhere,
        ..scene.commit_request(&live, 1)
    };
    assert_eq!(
        store.commit_blob(commit).await.expect("answered"),
        Committed::Gone
    );
    // The id is free for another try.
    let again = scene.reserve_request(&acme(), &a, &pending.id, 100);
    scene.upload(&again, 1).await;
}

/// Exactly at it; what is pending counts.
pub async fn an_upload_stops_at_the_quota(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let request = |name: &str, size| scene.reserve_request(&acme(), &a, &blob_id(name), size);
    let refuse = async |name: &str, size, used| {
        let refusal = refused(scene.store().reserve_blob(request(name, size)).await);
        let wanted = Rejection::QuotaExceeded {
            what: Quota::BlobBytesPerGraph,
            limit: 1_000,
            used,
        };
        assert_eq!(refusal, wanted, "{size} bytes");
    };
    refuse("a", 1_001, 0).await;
    refuse("a", u64::MAX, 0).await;
    scene.upload(&request("a", 400), 1).await;
    let pending = request("b", 500);
    scene.reserve(&pending).await;
    refuse("c", 101, 900).await;
    refuse("c", u64::MAX, 900).await;
    scene.upload(&request("c", 100), 1).await;
    refuse("d", 1, 1_000).await;
    scene.upload(&request("empty", 0), 1).await;
    scene
        .store()
        .abandon_blob(&acme(), &pending.object)
        .await
        .expect("answered");
    scene.upload(&request("d", 500), 1).await;
    refuse("e", 1, 1_000).await;
    scene.forget(&acme(), &a, &blob_id("a")).await;
    scene.upload(&request("e", 400), 1).await;
    assert_eq!(charged(&scene).await, 1_000);
}

/// It is gone at its time, before any sweep, and its bytes go with the first who needs them.
pub async fn an_expired_blob_makes_room_for_the_next(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let id = blob_id("photo");
    let expiring = |expires_at, now| ReserveBlob {
        policy: BlobPolicy::Expire,
        expires_at,
        now,
        ..scene.reserve_request(&acme(), &a, &id, 600)
    };
    let old = scene.upload(&expiring(ttl(5_000), at(2_000)), 1).await;
    assert_eq!(
        scene.blob(&acme(), &id, at(4_999)).await.as_ref(),
        Some(&old)
    );
    assert_eq!(scene.blob(&acme(), &id, at(5_000)).await, None);
    let forget = ForgetBlob {
        key: acme(),
        id: id.clone(),
        by: a.to_ref(),
        now: at(5_000),
    };
    let gone = scene.store().forget_blob(forget).await;
    assert_eq!(gone.expect("answered"), None, "it is gone already");
    assert_eq!(charged(&scene).await, 600, "and the sweep's to forget");
    let told = scene.store().reserve_blob(expiring(None, at(4_999))).await;
    assert_eq!(told.expect("answered"), Reserved::Exists(old.clone()));

    // 600 more would not fit beside the old one.
    let next = expiring(ttl(9_000), at(5_000));
    scene.reserve(&next).await;
    assert_eq!(charged(&scene).await, 600);
    assert!(
        scene
            .store()
            .drop_blob(&acme(), &old.object)
            .await
            .expect("answered"),
        "it is marked"
    );
    let Committed::Live(next) = scene.commit(&next, 2).await else {
        panic!("nothing else is live");
    };
    assert_eq!(
        scene.blob(&acme(), &id, at(6_000)).await.as_ref(),
        Some(&next)
    );

    // The same again, a millisecond too early and in time.
    let late = ReserveBlob {
        max_bytes_per_graph: 9_999,
        ..expiring(None, at(9_000))
    };
    let told = scene
        .store()
        .reserve_blob(ReserveBlob {
            now: at(8_999),
            ..late.clone()
        })
        .await;
    assert_eq!(told.expect("answered"), Reserved::Exists(next.clone()));
    scene.reserve(&late).await;
    let mut commit = scene.commit_request(&late, 3);
    commit.now = at(9_001);
    let committed = scene.store().commit_blob(commit).await.expect("answered");
    assert!(matches!(committed, Committed::Live(_)), "{committed:?}");
    assert_eq!(charged(&scene).await, 600);
    assert!(
        scene
            .store()
            .drop_blob(&acme(), &next.object)
            .await
            .expect("answered")
    );

    // Two uploads at once: the first is live for a moment, and has expired when the second ends.
    scene.forget(&acme(), &a, &id).await;
    let both = [ttl(10_000), None].map(|expires_at| ReserveBlob {
        max_bytes_per_graph: 9_999,
        ..expiring(expires_at, at(9_500))
    });
    for request in &both {
        scene.reserve(request).await;
    }
    let commit = async |request: &ReserveBlob, now| {
        let mut commit = scene.commit_request(request, 4);
        commit.now = now;
        scene.store().commit_blob(commit).await.expect("answered")
    };
    assert!(matches!(
        commit(&both[0], at(9_600)).await,
        Committed::Live(_)
    ));
    assert!(matches!(
        commit(&both[1], at(10_000)).await,
        Committed::Live(_)
    ));
    assert_eq!(charged(&scene).await, 600);
    let read = scene.blob(&acme(), &id, at(99_999)).await;
    assert_eq!(read.map(|blob| blob.object), Some(both[1].object.clone()));
}

/// Though it reserved in time; the bytes are given back.
pub async fn a_revoked_device_commits_nothing(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let gone = scene.device("sam", "gone").await;
    let request = scene.reserve_request(&acme(), &gone, &blob_id("photo"), 100);
    scene.reserve(&request).await;
    scene.revoke(&a, &gone).await;
    assert_eq!(scene.commit(&request, 1).await, Committed::Revoked);
    assert_eq!(charged(&scene).await, 0);
    assert_eq!(scene.blob(&acme(), &request.id, at(3_000)).await, None);
    assert!(
        scene
            .store()
            .drop_blob(&acme(), &request.object)
            .await
            .expect("answered")
    );
}

/// And only where there is a key; to upload, no wrap is needed.
pub async fn only_an_active_device_uploads_and_forgets(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let gone = scene.device("sam", "gone").await;
    let holderless = scene.device("sam", "late").await;
    scene.revoke(&a, &gone).await;
    let stranger = TestDevice::new("sam", "stranger");
    let id = blob_id("photo");
    let live = scene
        .upload(&scene.reserve_request(&acme(), &holderless, &id, 10), 1)
        .await;
    let own = StorageKey::own(&member("sam"));
    for (by, wanted) in [
        (&gone, Rejection::DeviceRevoked),
        (&stranger, Rejection::DeviceUnregistered),
    ] {
        for key in [&acme(), &own] {
            for id in [&id, &blob_id("new")] {
                let request = scene.reserve_request(key, by, id, 10);
                assert_eq!(refused(scene.store().reserve_blob(request).await), wanted);
                let request = ForgetBlob {
                    key: key.clone(),
                    id: id.clone(),
                    by: by.to_ref(),
                    now: at(1),
                };
                assert_eq!(refused(scene.store().forget_blob(request).await), wanted);
            }
        }
    }
    let unkeyed = scene.reserve_request(&own, &a, &id, 10);
    assert_eq!(
        refused(scene.store().reserve_blob(unkeyed).await),
        Rejection::GraphUnkeyed
    );
    assert_eq!(scene.forget(&own, &a, &id).await, None);
    assert_eq!(scene.blob(&own, &id, at(3_000)).await, None);
    assert_eq!(
        scene.blob(&acme(), &id, at(3_000)).await,
        Some(live.clone())
    );
    // Whoever may write to the graph may delete.
    assert_eq!(scene.forget(&acme(), &a, &id).await, Some(live));
}

/// Nor do ids that differ in case only.
pub async fn blobs_of_two_graphs_do_not_touch(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let own = StorageKey::own(&member("sam"));
    scene.rotate(&own, 1, &[&a]).await;
    let ids = ["photo", "PHOTO", "photo-", "-photo"].map(blob_id);
    let long = argala_wire::BlobId::new("x".repeat(128)).expect("legal");
    let mut live = Vec::new();
    for key in [acme(), own] {
        for id in ids.iter().chain([&long]) {
            let number = u8::try_from(live.len()).expect("few");
            let request = scene.reserve_request(&key, &a, id, u64::from(number));
            live.push(scene.upload(&request, number).await);
        }
    }
    for blob in &live {
        let read = scene.blob(&blob.graph, &blob.id, at(3_000)).await;
        assert_eq!(read.as_ref(), Some(blob));
    }
    while let Some(blob) = live.pop() {
        assert_eq!(scene.forget(&blob.graph, &a, &blob.id).await, Some(blob));
        for other in &live {
            let read = scene.blob(&other.graph, &other.id, at(3_000)).await;
            assert_eq!(read.as_ref(), Some(other));
        }
    }
    assert_eq!(charged(&scene).await, 0);
}

/// Neither twice, nor of a blob that is gone, is a fault; and the blob stays as it is.
pub async fn a_fetch_is_noted_as_often_as_it_comes(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let request = ReserveBlob {
        policy: BlobPolicy::Deliver,
        expires_at: ttl(90_000),
        ..scene.reserve_request(&acme(), &a, &blob_id("letter"), 10)
    };
    let live = scene.upload(&request, 1).await;
    let [b, c] = scene.devices([("sam", "x"), ("alex", "x")]).await;
    let note = async |device: &TestDevice| {
        for _ in 0..2 {
            let noted = scene
                .store()
                .note_fetched(&acme(), &live.object, &device.to_ref())
                .await;
            noted.expect("answered");
        }
        let fetched = scene.store().fetched_by(&acme(), &live.object).await;
        fetched.expect("answered")
    };
    let before = scene.store().fetched_by(&acme(), &live.object).await;
    assert!(before.expect("answered").is_empty());
    assert_eq!(note(&b).await, [b.to_ref()]);
    assert_eq!(note(&c).await, [c.to_ref(), b.to_ref()]);
    assert_eq!(
        scene.blob(&acme(), &live.id, at(3_000)).await,
        Some(live.clone())
    );
    scene.forget(&acme(), &a, &live.id).await;
    note(&a).await;
    assert!(
        scene
            .store()
            .drop_blob(&acme(), &live.object)
            .await
            .expect("answered")
    );
    assert!(note(&b).await.is_empty());
}
