//! Every operation, on something.

use std::time::Duration;

use argala_core::ports::{
    BlobStore, DirectoryTables, SweepStore,
    store::{CommitBlob, DeviceMark, ForgetBlob, Idempotency, Revoke},
};
use argala_wire::{Sealed, StorageKey, blobs::BlobPolicy};
use bytes::Bytes;
use futures_util::StreamExt;

use super::{
    Stock, devices_query, grant, graph, graphs_query, object, pull, push, records, reserve,
    wraps_query,
};
use crate::{EPOCH, TestDevice, blob_id, group, member};

/// Runs every operation of every port at least once, the branches with statements of their own
/// too.
///
/// # Panics
/// Where the database refuses any of it.
pub async fn run_everything<D>(stock: &Stock<D>)
where
    D: SweepStore + BlobStore + DirectoryTables,
{
    let db = &stock.db;
    directory(stock).await;
    db.ping().await.expect("answered");

    let sam = stock.devices("sam", 3).await;
    let alex = stock.devices("alex", 2).await;
    let mut relabelled = sam[0].register(EPOCH);
    relabelled.label = Some(Sealed(b"label".to_vec()));
    db.register(relabelled).await.expect("answered");
    let (acme, own) = (graph("acme"), StorageKey::own(&member("sam")));
    for (key, epoch) in [(&acme, 1), (&own, 1), (&acme, 2)] {
        stock.rotate(key, epoch, &sam).await;
    }
    let mut granting = grant(&acme, &sam[0], &alex, 1);
    granting.wraps.extend(grant(&acme, &sam[0], &alex, 2).wraps);
    db.grant(granting).await.expect("answered");

    for content in ["one", "one", "two"] {
        stock
            .push(&own, &sam[0], records(&own, &sam[0], 5, content))
            .await;
    }
    let mut request = push(&own, &sam[0], records(&own, &sam[0], 2, "three"));
    request.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        body: [0; 32],
        since: EPOCH,
    });
    db.push(request.clone()).await.expect("answered");
    db.push(request).await.expect("answered");
    let mut pulling = pull(&own, &sam[0], 3);
    db.pull(pulling.clone()).await.expect("answered");
    pulling.epoch = Some(1);
    db.pull(pulling).await.expect("answered");

    let mut listing = graphs_query(&sam[0]);
    db.graphs_of(&listing).await.expect("answered");
    listing.groups = Some(vec![group("acme")]);
    listing.after = Some(own.clone());
    db.graphs_of(&listing).await.expect("answered");
    db.graph(&acme).await.expect("answered");
    db.standing(&acme, &[member("sam"), member("alex")])
        .await
        .expect("answered");
    db.graph_devices(&devices_query(&acme, &["sam"]))
        .await
        .expect("answered");
    db.wraps(&wraps_query(&acme, &sam[0]))
        .await
        .expect("answered");
    db.flag_directory(&acme, 2, true).await.expect("answered");
    db.device(&sam[0].to_ref()).await.expect("answered");
    let mark = DeviceMark {
        registered_at: EPOCH,
        device_id: sam[0].to_ref().device_id,
    };
    db.devices_of_member(&member("sam"), Some(&mark), 10)
        .await
        .expect("answered");
    db.record_seen(&[(sam[0].to_ref(), EPOCH)])
        .await
        .expect("answered");

    blobs(stock, &acme, &sam[0]).await;
    objects(stock).await;

    let revoke = Revoke {
        by: sam[0].to_ref(),
        device_id: sam[2].to_ref().device_id,
        now: EPOCH,
    };
    db.revoke(revoke).await.expect("answered");
    db.revoked_among(&[sam[2].to_ref()])
        .await
        .expect("answered");
    let later = EPOCH.saturating_add(Duration::from_secs(1));
    db.drop_idempotency(later, 10).await.expect("answered");
    stock.counters_are_exact(&acme).await;
    stock.counters_are_exact(&own).await;
}

async fn directory<D>(stock: &Stock<D>)
where
    D: SweepStore + BlobStore + DirectoryTables,
{
    let db = &stock.db;
    let (sam, acme) = (member("sam"), group("acme"));
    db.add_member(&sam).await.expect("answered");
    db.create_group(&acme).await.expect("answered");
    assert_eq!(
        db.join_group(&acme, &sam).await.expect("answered"),
        Some(true)
    );
    db.members_of_group(&acme).await.expect("answered");
    db.is_group_member(&acme, &sam).await.expect("answered");
    db.is_active_member(&sam).await.expect("answered");
    db.groups_of_member(&sam).await.expect("answered");
    db.active_members(std::slice::from_ref(&sam))
        .await
        .expect("answered");
    db.list_members(None, 10).await.expect("answered");
    db.list_groups(None, 10).await.expect("answered");
    db.leave_group(&acme, &sam).await.expect("answered");
    db.remove_member(&sam).await.expect("answered");
}

async fn blobs<D>(stock: &Stock<D>, key: &StorageKey, by: &TestDevice)
where
    D: SweepStore + BlobStore + DirectoryTables,
{
    let db = &stock.db;
    let expired = EPOCH.saturating_add(Duration::from_secs(60));
    let live = async |number: u64, id: &str| {
        let object = object(db, number);
        let mut request = reserve(key, by, blob_id(id), object.clone());
        request.policy = BlobPolicy::Deliver;
        request.expires_at = Some(expired);
        db.reserve_blob(request).await.expect("answered");
        let commit = CommitBlob {
            key: key.clone(),
            object: object.clone(),
            by: by.to_ref(),
            sha256: [0; 32],
            now: EPOCH,
        };
        db.commit_blob(commit).await.expect("answered");
        object
    };
    let fetched = live(1, "fetched").await;
    db.note_fetched(key, &fetched, &by.to_ref())
        .await
        .expect("answered");
    assert_eq!(
        db.fetched_by(key, &fetched).await.expect("answered").len(),
        1
    );
    db.blob(key, &blob_id("fetched"), EPOCH)
        .await
        .expect("answered")
        .expect("answered");
    live(2, "forgotten").await;
    let forget = ForgetBlob {
        key: key.clone(),
        id: blob_id("forgotten"),
        by: by.to_ref(),
        now: EPOCH,
    };
    db.forget_blob(forget)
        .await
        .expect("answered")
        .expect("answered");
    let abandoned = object(db, 3);
    let request = reserve(key, by, blob_id("abandoned"), abandoned.clone());
    db.reserve_blob(request).await.expect("answered");
    db.abandon_blob(key, &abandoned).await.expect("answered");
    let doomed = db
        .doom_blobs(expired, expired, expired, 10)
        .await
        .expect("answered");
    assert_eq!(doomed.len(), 3);
    for doomed in doomed {
        assert!(
            db.drop_blob(&doomed.graph, &doomed.object)
                .await
                .expect("answered")
        );
    }
}

async fn objects<D>(stock: &Stock<D>)
where
    D: SweepStore + BlobStore + DirectoryTables,
{
    let db = &stock.db;
    let key = object(db, 9);
    let body = futures_util::stream::iter([Ok(Bytes::from(vec![7; 3 << 20]))]);
    db.put(&key, 3 << 20, Box::pin(body))
        .await
        .expect("answered");
    let read = db
        .get(&key, Some(5..1 << 20))
        .await
        .expect("answered")
        .expect("answered");
    let read: Vec<_> = read.collect().await;
    assert_eq!(
        read.iter()
            .map(|it| it.as_ref().expect("answered").len())
            .sum::<usize>(),
        (1 << 20) - 5
    );
    db.delete(&key).await.expect("answered");
}
