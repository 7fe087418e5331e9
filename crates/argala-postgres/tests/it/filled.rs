//! A database in which every operation has run, on something.

use std::time::Duration;

use argala_core::ports::{
    BlobStore, Directory, DirectoryTables, Store, SweepStore,
    store::{CommitBlob, DeviceMark, ForgetBlob, Idempotency, Revoke},
};
use argala_testkit::{EPOCH, blob_id, group, member};
use argala_wire::{Sealed, StorageKey, blobs::BlobPolicy};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::scene::{
    Scene, devices_query, grant, graph, graphs_query, object, pull, push, records, reserve,
    wraps_query,
};

/// Runs every operation of every port at least once, the branches with statements of their own
/// too.
pub(crate) async fn run_everything(scene: &Scene) {
    let db = &scene.db;
    directory(scene).await;
    db.ping().await.unwrap();

    let sam = scene.devices("sam", 3).await;
    let alex = scene.devices("alex", 2).await;
    let mut relabelled = sam[0].register(EPOCH);
    relabelled.label = Some(Sealed(b"label".to_vec()));
    db.register(relabelled).await.unwrap();
    let (acme, own) = (graph("acme"), StorageKey::own(&member("sam")));
    for (key, epoch) in [(&acme, 1), (&own, 1), (&acme, 2)] {
        scene.rotate(key, epoch, &sam).await;
    }
    let mut granting = grant(&acme, &sam[0], &alex, 1);
    granting.wraps.extend(grant(&acme, &sam[0], &alex, 2).wraps);
    db.grant(granting).await.unwrap();

    for content in ["one", "one", "two"] {
        scene
            .push(&own, &sam[0], records(&own, &sam[0], 5, content))
            .await;
    }
    let mut request = push(&own, &sam[0], records(&own, &sam[0], 2, "three"));
    request.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        body: [0; 32],
        since: EPOCH,
    });
    db.push(request.clone()).await.unwrap();
    db.push(request).await.unwrap();
    let mut pulling = pull(&own, &sam[0], 3);
    db.pull(pulling.clone()).await.unwrap();
    pulling.epoch = Some(1);
    db.pull(pulling).await.unwrap();

    let mut listing = graphs_query(&sam[0]);
    db.graphs_of(&listing).await.unwrap();
    listing.groups = Some(vec![group("acme")]);
    listing.after = Some(own.clone());
    db.graphs_of(&listing).await.unwrap();
    db.graph(&acme).await.unwrap();
    db.standing(&acme, &[member("sam"), member("alex")])
        .await
        .unwrap();
    db.graph_devices(&devices_query(&acme, &["sam"]))
        .await
        .unwrap();
    db.wraps(&wraps_query(&acme, &sam[0])).await.unwrap();
    db.flag_directory(&acme, 2, true).await.unwrap();
    db.device(&sam[0].to_ref()).await.unwrap();
    let mark = DeviceMark {
        registered_at: EPOCH,
        device_id: sam[0].to_ref().device_id,
    };
    db.devices_of_member(&member("sam"), Some(&mark), 10)
        .await
        .unwrap();
    db.record_seen(&[(sam[0].to_ref(), EPOCH)]).await.unwrap();

    blobs(scene, &acme, &sam[0]).await;
    objects(scene).await;

    let revoke = Revoke {
        by: sam[0].to_ref(),
        device_id: sam[2].to_ref().device_id,
        now: EPOCH,
    };
    db.revoke(revoke).await.unwrap();
    db.revoked_among(&[sam[2].to_ref()]).await.unwrap();
    let later = EPOCH.saturating_add(Duration::from_secs(1));
    db.drop_idempotency(later, 10).await.unwrap();
    scene.counters_are_exact(&acme).await;
    scene.counters_are_exact(&own).await;
}

async fn directory(scene: &Scene) {
    let db = &scene.db;
    let (sam, acme) = (member("sam"), group("acme"));
    db.add_member(&sam).await.unwrap();
    db.create_group(&acme).await.unwrap();
    assert_eq!(db.join_group(&acme, &sam).await.unwrap(), Some(true));
    db.members_of_group(&acme).await.unwrap();
    db.is_group_member(&acme, &sam).await.unwrap();
    db.is_active_member(&sam).await.unwrap();
    db.groups_of_member(&sam).await.unwrap();
    db.active_members(std::slice::from_ref(&sam)).await.unwrap();
    db.list_members(None, 10).await.unwrap();
    db.list_groups(None, 10).await.unwrap();
    db.leave_group(&acme, &sam).await.unwrap();
    db.remove_member(&sam).await.unwrap();
}

async fn blobs(scene: &Scene, key: &StorageKey, by: &argala_testkit::TestDevice) {
    let db = &scene.db;
    let expired = EPOCH.saturating_add(Duration::from_secs(60));
    let live = async |number: u64, id: &str| {
        let object = object(db, number);
        let mut request = reserve(key, by, blob_id(id), object.clone());
        request.policy = BlobPolicy::Deliver;
        request.expires_at = Some(expired);
        db.reserve_blob(request).await.unwrap();
        let commit = CommitBlob {
            key: key.clone(),
            object: object.clone(),
            by: by.to_ref(),
            sha256: [0; 32],
            now: EPOCH,
        };
        db.commit_blob(commit).await.unwrap();
        object
    };
    let fetched = live(1, "fetched").await;
    db.note_fetched(key, &fetched, &by.to_ref()).await.unwrap();
    assert_eq!(db.fetched_by(key, &fetched).await.unwrap().len(), 1);
    db.blob(key, &blob_id("fetched"), EPOCH)
        .await
        .unwrap()
        .unwrap();
    live(2, "forgotten").await;
    let forget = ForgetBlob {
        key: key.clone(),
        id: blob_id("forgotten"),
        by: by.to_ref(),
        now: EPOCH,
    };
    db.forget_blob(forget).await.unwrap().unwrap();
    let abandoned = object(db, 3);
    let request = reserve(key, by, blob_id("abandoned"), abandoned.clone());
    db.reserve_blob(request).await.unwrap();
    db.abandon_blob(key, &abandoned).await.unwrap();
    let doomed = db.doom_blobs(expired, expired, expired, 10).await.unwrap();
    assert_eq!(doomed.len(), 3);
    for doomed in doomed {
        assert!(db.drop_blob(&doomed.graph, &doomed.object).await.unwrap());
    }
}

async fn objects(scene: &Scene) {
    let db = &scene.db;
    let key = object(db, 9);
    let body = futures_util::stream::iter([Ok(Bytes::from(vec![7; 3 << 20]))]);
    db.put(&key, 3 << 20, Box::pin(body)).await.unwrap();
    let read = db.get(&key, Some(5..1 << 20)).await.unwrap().unwrap();
    let read: Vec<_> = read.collect().await;
    assert_eq!(
        read.iter()
            .map(|it| it.as_ref().unwrap().len())
            .sum::<usize>(),
        (1 << 20) - 5
    );
    db.delete(&key).await.unwrap();
}
