//! What an operator does to whole graphs and members, as those who use them see it.

use std::{sync::Arc, time::Duration};

use argala_core::{
    Fault, Outcome, PullQuery, Rejection, Upload,
    erase::Eraser,
    ports::{
        BlobStore, Clock as _, ForgetReason, UpkeepStore,
        store::{Erasure, Pulled},
    },
};
use argala_wire::{StorageKey, blobs::BlobPolicy, limits::Bucket};
use bytes::Bytes;
use futures_util::stream;

use super::{GROUP, RelayPorts, Rig, rejection, sweeps};
use crate::{TestDevice, blob_id, conformance::Fresh, member};

fn acme() -> StorageKey {
    StorageKey::group(&crate::group("acme"))
}

fn eraser(rig: &Rig) -> Eraser {
    let store: Arc<dyn UpkeepStore> = Arc::clone(&rig.store) as _;
    let blobs: Arc<dyn BlobStore> = Arc::clone(&rig.blobs);
    let events = Arc::new(rig.events.clone());
    Eraser::new(store, blobs, events, Duration::from_secs(10))
}

async fn put(rig: &Rig, device: &TestDevice, name: &str) -> Outcome<()> {
    let access = rig.open(device, GROUP).await?;
    let upload = Upload {
        id: blob_id(name),
        size: 7,
        policy: BlobPolicy::Keep,
        ttl_seconds: None,
        digest: None,
        body: Box::pin(stream::iter([Ok(Bytes::from_static(b"content"))])),
    };
    rig.relay.put_blob(&access, upload).await.map(drop)
}

/// A graph with records and blobs of sam's and alex's.
async fn filled(rig: &Rig) {
    rig.keyed().await;
    for (device, number) in [(&rig.laptop, 0), (&rig.alex, 1), (&rig.laptop, 2)] {
        let id = format!("record{number}");
        rig.push(device, &id, "content").await.expect("pushed");
        let id = format!("a-blob-of-number-{number}");
        put(rig, device, &id).await.expect("stored");
    }
    rig.settle().await;
}

async fn exact(rig: &Rig, key: &StorageKey) -> u64 {
    let recount = rig.store.recount(key).await.expect("answered");
    let recount = recount.expect("the graph is there");
    assert_eq!(recount.stored, recount.counted);
    recount.stored.records
}

async fn erasures(rig: &Rig) -> Vec<Erasure> {
    rig.store.erasures(9).await.expect("answered")
}

/// Sam leaves the group, and the epoch that follows is for alex alone.
async fn leave_to_alex(rig: &Rig) {
    rig.directory.leave("acme", "sam");
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    let request = argala_wire::keys::RotateRequest {
        epoch: 2,
        wraps: vec![rig.alex.rotate_wrap("another key")],
    };
    rig.relay.rotate(&access, request).await.expect("rotated");
}

async fn graphs_with(rig: &Rig, name: &str) -> Vec<StorageKey> {
    let with = rig.store.graphs_with(&member(name), None, 9).await;
    with.expect("answered")
}

/// A row of each kind of a member's, and its object; whether there may be more.
async fn erase_some_from(rig: &Rig, name: &str) -> bool {
    let (key, member, now) = (acme(), member(name), rig.clock.now());
    let erased = rig.store.erase_from(&key, &member, 99, now, 1).await;
    let erased = erased.expect("answered");
    let gone = eraser(rig).remove(&erased.doomed, now).await;
    assert_eq!(gone.expect("removed").failed, 0);
    erased.more
}

/// Steps of so many rows until the erasure has ended; how many it took.
async fn finish(rig: &Rig, erasure: &Erasure, limit: usize) -> usize {
    let eraser = eraser(rig);
    for step in 1..200 {
        let told = eraser.step(erasure, rig.clock.now(), limit).await;
        let (erased, removed) = told.expect("the store answers");
        assert_eq!(removed.failed, 0);
        if !erased.more {
            return step;
        }
    }
    panic!("an erasure has an end");
}

async fn begin(rig: &Rig) -> bool {
    let now = rig.clock.now();
    let reason = ForgetReason::Requested;
    let begun = rig.store.begin_erasure(&acme(), reason, now).await;
    begun.expect("answered")
}

/// From the first step on it is not there; another may begin under its key and is not touched.
pub async fn an_erased_graph_is_gone_at_once_and_for_good(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    let own = StorageKey::own(&member("sam"));
    assert!(begin(&rig).await);
    assert!(!begin(&rig).await, "it is not there any more");
    assert!(
        rig.pull(&rig.alex)
            .await
            .expect("pulled")
            .page
            .records
            .is_empty()
    );
    assert!(rig.push(&rig.laptop, "new", "content").await.is_err());
    let listed = rig
        .admit(&rig.laptop, Bucket::Pull)
        .await
        .expect("admitted");
    let listed = rig.relay.graphs(&listed, Default::default()).await;
    assert!(listed.expect("listed").graphs.is_empty());
    assert_eq!(rig.store.graph_keys(None, 9).await.expect("answered"), []);
    assert!(rig.store.recount(&own).await.expect("answered").is_none());

    rig.rotate(1, &[&rig.laptop, &rig.phone, &rig.alex])
        .await
        .expect("from the beginning");
    rig.push(&rig.laptop, "new", "content")
        .await
        .expect("pushed");
    put(&rig, &rig.laptop, "a-blob-of-another-life")
        .await
        .expect("stored");
    rig.settle().await;
    let [erasure] = &erasures(&rig).await[..] else {
        panic!("one erasure");
    };
    assert_eq!(
        (&erasure.graph, erasure.reason),
        (&acme(), ForgetReason::Requested)
    );
    assert!(finish(&rig, erasure, 2).await > 4, "a few rows at a time");
    assert_eq!(rig.events.take_names(), ["blob.forget"; 3]);
    assert!(erasures(&rig).await.is_empty());
    assert_eq!(exact(&rig, &acme()).await, 1);
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    let id = blob_id("a-blob-of-another-life");
    let blob = rig.relay.blob(&access, &id).await;
    blob.expect("the other's stays");
    let left = rig.blobs.list(rig.store.instance(), None, 9).await;
    assert_eq!(left.expect("listed").len(), 1);
}

/// Whoever began it may have died: another goes on, and what was marked is not told twice.
pub async fn an_erasure_that_is_cut_off_is_found_again(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    assert!(begin(&rig).await);
    let [erasure] = &erasures(&rig).await[..] else {
        panic!("one erasure");
    };
    // Marked, and nobody is there to remove the objects.
    let some = rig.store.erase_some(erasure, rig.clock.now(), 2).await;
    let some = some.expect("answered");
    assert!(some.more && some.doomed.len() == 2);
    let sweep = rig.sweep();
    let report = sweep.pass().await.expect("swept");
    assert_eq!(report.forgotten["requested"], 3);
    assert_eq!(rig.events.take_names(), ["blob.forget"; 3]);
    assert!(erasures(&rig).await.is_empty());
}

/// What is left of its keys keeps no device of a member who is erased meanwhile.
pub async fn a_graph_that_is_going_names_nobody(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    assert!(begin(&rig).await);
    let (devices, named) = rig
        .store
        .erase_member(&member("sam"))
        .await
        .expect("answered");
    assert_eq!((devices, named), (2, Vec::new()));
    let [erasure] = &erasures(&rig).await[..] else {
        panic!("one erasure");
    };
    finish(&rig, erasure, 2).await;
}

/// Theirs goes, the others' stays; everybody starts over; the current epoch owes a rotation.
pub async fn a_member_is_erased_from_what_others_share(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    let sam = member("sam");
    let with = rig.store.graphs_with(&sam, None, 9).await;
    assert_eq!(with.expect("answered"), [acme()]);
    let before = rig.pull(&rig.alex).await.expect("pulled").page;
    assert_eq!(before.records.len(), 3);
    for device in [&rig.laptop, &rig.phone] {
        let caller = rig.admit(device, Bucket::Keys).await.expect("admitted");
        let revoked = rig.relay.revoke(&caller, device.to_ref().device_id).await;
        revoked.expect("revoked");
    }
    rig.settle().await;
    let (mut records, mut removed) = (0, 0);
    for incarnation in 100.. {
        let now = rig.clock.now();
        let erased = rig
            .store
            .erase_from(&acme(), &sam, incarnation, now, 1)
            .await;
        let erased = erased.expect("answered");
        records += erased.records;
        let gone = eraser(&rig).remove(&erased.doomed, now).await;
        removed += gone.expect("removed").forgotten.len();
        if !erased.more {
            break;
        }
    }
    assert_eq!((records, removed), (2, 2));
    assert_eq!(exact(&rig, &acme()).await, 1);
    let query = PullQuery {
        cursor: Some(before.cursor),
        variant: "application/json",
        ..PullQuery::default()
    };
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    assert!(matches!(
        rejection(rig.relay.pull(&access, query).await),
        Rejection::CursorInvalid { .. }
    ));
    let page = rig.pull(&rig.alex).await.expect("pulled").page;
    assert_eq!(page.records.len(), 1);
    assert!(page.rotation_owed);
    // What the current epoch still names stays until the others have rotated.
    let (devices, named) = rig.store.erase_member(&sam).await.expect("answered");
    assert_eq!((devices, named), (0, vec![acme()]));
    leave_to_alex(&rig).await;
    let now = rig.clock.now();
    let last = rig.store.erase_from(&acme(), &sam, 999, now, 9).await;
    assert_eq!(last.expect("answered").wraps, 2);
    let (devices, named) = rig.store.erase_member(&sam).await.expect("answered");
    assert_eq!((devices, named.len()), (2, 0));
    assert!(
        rig.store
            .graphs_with(&sam, None, 9)
            .await
            .expect("answered")
            .is_empty()
    );
    assert_eq!(
        rig.pull(&rig.alex)
            .await
            .expect("pulled")
            .page
            .records
            .len(),
        1
    );
}

/// Whoever began it may have died: a graph of which their devices hold no key any more is listed until
/// nothing of theirs is left there.
pub async fn a_part_that_is_cut_off_is_found_again(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    leave_to_alex(&rig).await;
    rig.settle().await;
    // Marked, and nobody is there to remove the object.
    let (key, sam, now) = (acme(), member("sam"), rig.clock.now());
    let erased = rig.store.erase_from(&key, &sam, 99, now, 1).await;
    assert!(erased.expect("answered").more);
    rig.clock.advance(Duration::from_millis(1));
    let mut steps = 1;
    loop {
        assert_eq!(graphs_with(&rig, "sam").await, [acme()], "after {steps}");
        steps += 1;
        assert!(steps < 20, "what is marked goes, or is put off");
        if !erase_some_from(&rig, "sam").await {
            break;
        }
    }
    assert!(steps > 2, "two records, one at a time");
    assert_eq!(graphs_with(&rig, "sam").await, []);
    assert_eq!(rig.events.take_names(), ["blob.forget"; 2]);
    let objects = rig.blobs.list(rig.store.instance(), None, 9).await;
    assert_eq!(objects.expect("listed").len(), 1, "the other's is there");
    assert_eq!(exact(&rig, &acme()).await, 1);
}

/// A member may put and fetch blobs of a graph of which none of their devices ever had a key.
pub async fn a_member_without_a_key_is_erased_too(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    sweeps::put(&rig, BlobPolicy::Deliver, None).await;
    let newcomers = ["kim", "lee"].map(|name| {
        rig.directory.set_member(name, true);
        rig.directory.join("acme", name);
        TestDevice::new(name, "tablet")
    });
    let [kim, lee] = &newcomers;
    for newcomer in &newcomers {
        rig.register(newcomer).await;
    }
    put(&rig, kim, "a-blob-of-kim-s-own").await.expect("stored");
    sweeps::fetch(&rig, lee).await;
    assert_eq!(graphs_with(&rig, "nobody").await, []);
    for name in ["kim", "lee"] {
        assert_eq!(graphs_with(&rig, name).await, [acme()]);
        while erase_some_from(&rig, name).await {}
        assert_eq!(graphs_with(&rig, name).await, []);
    }
    assert_eq!(rig.events.take_names().last(), Some(&"blob.forget"));
    let objects = rig.blobs.list(rig.store.instance(), None, 9).await;
    assert_eq!(objects.expect("listed").len(), 4, "the others' are there");
    exact(&rig, &acme()).await;
}

/// No epoch number is used for two keys, and no cursor of the lost time is taken for a new one.
pub async fn a_restored_store_owes_rotations_and_tells_old_cursors(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    let cursor = rig.pull(&rig.alex).await.expect("pulled").page.cursor;
    let keys = rig.store.graph_keys(None, 9).await.expect("answered");
    assert_eq!(keys, [acme()]);
    assert_eq!(
        rig.store
            .graph_keys(Some(&acme()), 9)
            .await
            .expect("answered"),
        []
    );
    let nobody: StorageKey = StorageKey::own(&member("nobody"));
    let renewed = [(acme(), 77), (nobody, 78)];
    assert_eq!(rig.store.renew(&renewed, 1_000).await.expect("answered"), 1);
    let graph = rig
        .store
        .graph(&acme())
        .await
        .expect("answered")
        .expect("there");
    assert_eq!((graph.epoch, graph.incarnation), (1_001, 77));
    assert!(graph.rotation_owed());
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    let query = PullQuery {
        cursor: Some(cursor),
        variant: "application/json",
        ..PullQuery::default()
    };
    match rig.relay.pull(&access, query).await {
        Err(Fault::Rejected(Rejection::CursorInvalid { .. })) => {}
        Ok(Pulled::Page(_) | Pulled::Unchanged { .. }) => panic!("an old cursor was taken"),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(
        rig.push(&rig.laptop, "new", "content")
            .await
            .expect("answered")
            .accepted,
        0
    );
    let devices = [&rig.laptop, &rig.phone, &rig.alex];
    assert!(rig.rotate(2, &devices).await.is_err());
    rig.rotate(1_002, &devices).await.expect("rotated");
    let graph = rig
        .store
        .graph(&acme())
        .await
        .expect("answered")
        .expect("there");
    assert!(!graph.rotation_owed());
    assert_eq!(
        rig.pull(&rig.alex)
            .await
            .expect("pulled")
            .page
            .records
            .len(),
        3
    );
}

/// Those that are not have to be made wrong beside the port: see the adapters' own tests.
pub async fn counters_that_are_right_are_left_alone(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    filled(&rig).await;
    let mended = rig.store.mend(&acme()).await.expect("answered");
    let mended = mended.expect("there");
    assert_eq!(mended.stored, mended.counted);
    assert_eq!(exact(&rig, &acme()).await, 3);
    let nobody = StorageKey::own(&member("nobody"));
    assert!(rig.store.mend(&nobody).await.expect("answered").is_none());
}
