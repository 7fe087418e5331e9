//! What a pass of the sweep forgets, and what it leaves alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use argala_core::{
    Access, IdempotencyKey, Outcome, Rejection, StoreError, StoreResult, Upload,
    ports::{
        BlobStore, Clock as _, Event, ForgetReason, ObjectKey,
        store::{ForgetBlob, Pulled},
    },
    sweep::{Sweep, SweepOptions, SweepReport},
};
use argala_wire::{StorageKey, blobs::BlobPolicy, records::PushRequest};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};

use super::{GROUP, RelayPorts, Rig, rejection};
use crate::{Interpose, Interposed, TestDevice, blob_id, conformance::Fresh, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ID: &str = "a-blob-of-sixteen";

fn acme() -> StorageKey {
    StorageKey::group(&crate::group("acme"))
}

async fn access(rig: &Rig, device: &TestDevice) -> Access {
    rig.open(device, GROUP).await.expect("a member")
}

pub(super) async fn put(rig: &Rig, policy: BlobPolicy, ttl_seconds: Option<u64>) {
    put_as(rig, ID, policy, ttl_seconds).await;
}

async fn put_as(rig: &Rig, id: &str, policy: BlobPolicy, ttl_seconds: Option<u64>) {
    let upload = Upload {
        id: blob_id(id),
        size: 7,
        policy,
        ttl_seconds,
        digest: None,
        body: Box::pin(stream::iter([Ok(Bytes::from_static(b"content"))])),
    };
    let access = access(rig, &rig.laptop).await;
    rig.relay.put_blob(&access, upload).await.expect("stored");
}

/// Reads the blob whole, and waits until that is noted.
pub(super) async fn fetch(rig: &Rig, device: &TestDevice) {
    let access = access(rig, device).await;
    let blob = rig.relay.blob(&access, &blob_id(ID)).await.expect("there");
    let bytes = rig.relay.read_blob(&access, &blob, None).await;
    let bytes: Vec<Bytes> = bytes.expect("read").try_collect().await.expect("whole");
    assert_eq!(bytes.concat(), b"content");
    eventually("the fetch is noted", || async {
        let noted = rig.store.fetched_by(&blob.graph, &blob.object).await;
        let noted = noted.expect("answered");
        noted.contains(&device.to_ref()).then_some(())
    })
    .await;
}

async fn charged(rig: &Rig) -> u64 {
    let recount = rig.store.recount(&acme()).await.expect("answered");
    let recount = recount.expect("the graph is there");
    assert_eq!(recount.stored, recount.counted);
    recount.stored.blob_bytes
}

async fn is_there(rig: &Rig) -> bool {
    let access = access(rig, &rig.alex).await;
    rig.relay.blob(&access, &blob_id(ID)).await.is_ok()
}

fn forgotten(rig: &Rig) -> Vec<ForgetReason> {
    let events = rig.events.take();
    let told = events.into_iter().filter_map(|event| match event {
        Event::BlobForget { reason, .. } => Some(reason),
        _ => None,
    });
    told.collect()
}

async fn pass(sweep: &Sweep) -> SweepReport {
    sweep.pass().await.expect("the store answers")
}

/// Once each device of the roster but the uploader's has fetched it.
pub async fn a_blob_that_everybody_has_is_forgotten(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    put(&rig, BlobPolicy::Deliver, None).await;
    fetch(&rig, &rig.laptop).await;
    fetch(&rig, &rig.phone).await;
    assert!(pass(&sweep).await.forgotten.is_empty(), "alex has not");
    assert!(is_there(&rig).await);
    fetch(&rig, &rig.alex).await;
    drop(rig.events.take());
    assert_eq!(pass(&sweep).await.forgotten["delivered"], 1);
    assert_eq!(forgotten(&rig), [ForgetReason::Delivered]);
    assert_eq!(charged(&rig).await, 0);
    assert!(!is_there(&rig).await);
    assert_eq!(pass(&sweep).await, SweepReport::default());
}

/// Who is off the roster is not waited for; that is looked at again without anybody's fetching.
pub async fn who_leaves_is_not_waited_for(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    put(&rig, BlobPolicy::Deliver, None).await;
    fetch(&rig, &rig.phone).await;
    assert!(pass(&sweep).await.forgotten.is_empty());
    rig.directory.leave("acme", "alex");
    assert!(pass(&sweep).await.forgotten.is_empty(), "not its turn yet");
    rig.clock.advance(Duration::from_secs(601));
    assert_eq!(pass(&sweep).await.forgotten["delivered"], 1);
}

/// A directory that answers with nobody, or with nothing at all, completes no delivery.
pub async fn nothing_is_delivered_on_doubt(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    put(&rig, BlobPolicy::Deliver, None).await;
    for device in [&rig.phone, &rig.alex] {
        fetch(&rig, device).await;
    }
    rig.directory.set_failing(true);
    let report = pass(&sweep).await;
    assert!(
        report.forgotten.is_empty() && report.doubts == 1,
        "{report:?}"
    );
    rig.directory.set_failing(false);
    rig.directory.set_group("acme", &[]);
    rig.clock.advance(Duration::from_secs(601));
    assert!(pass(&sweep).await.forgotten.is_empty(), "nobody is there");
    // Only the uploader is left: there is nobody to deliver to.
    rig.directory.set_group("acme", &["sam"]);
    rig.relay
        .revoke(
            &rig.admit(&rig.laptop, argala_wire::limits::Bucket::Keys)
                .await
                .expect("admitted"),
            rig.phone.to_ref().device_id,
        )
        .await
        .expect("revoked");
    rig.clock.advance(Duration::from_secs(601));
    assert!(pass(&sweep).await.forgotten.is_empty());
    assert_eq!(charged(&rig).await, 7);
    rig.directory.set_group("acme", &["sam", "alex"]);
    rig.clock.advance(Duration::from_secs(601));
    assert_eq!(pass(&sweep).await.forgotten["delivered"], 1);
}

/// Sweeps once a day, so many days.
async fn days(rig: &Rig, sweep: &Sweep, count: u32) -> SweepReport {
    let mut last = SweepReport::default();
    for _ in 0..count {
        rig.clock.advance(DAY);
        last = pass(sweep).await;
    }
    last
}

async fn graph_is_there(rig: &Rig) -> bool {
    rig.store.graph(&acme()).await.expect("answered").is_some()
}

/// With all it held; and another may begin under its key.
pub async fn the_graph_of_a_group_that_is_long_empty_goes(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    rig.push(&rig.laptop, "one", "content")
        .await
        .expect("pushed");
    put(&rig, BlobPolicy::Keep, None).await;
    days(&rig, &sweep, 40).await;
    assert!(graph_is_there(&rig).await, "it has members");
    rig.directory.set_group("acme", &[]);
    days(&rig, &sweep, 30).await;
    assert!(
        graph_is_there(&rig).await,
        "29 days since it was found empty"
    );
    drop(rig.events.take());
    let report = days(&rig, &sweep, 1).await;
    assert_eq!((report.abandoned, report.forgotten["abandoned"]), (1, 1));
    assert!(
        report.erased > 4,
        "the record, the wraps, the epoch: {report:?}"
    );
    assert_eq!(forgotten(&rig), [ForgetReason::Abandoned]);
    assert!(!graph_is_there(&rig).await);
    assert!(rig.store.erasures(9).await.expect("answered").is_empty());

    rig.directory.set_group("acme", &["sam", "alex"]);
    assert!(
        rig.pull(&rig.alex)
            .await
            .expect("pulled")
            .page
            .records
            .is_empty()
    );
    rig.rotate(1, &[&rig.laptop, &rig.phone, &rig.alex])
        .await
        .expect("from the beginning");
    assert_eq!(days(&rig, &sweep, 3).await.abandoned, 0);
    assert!(graph_is_there(&rig).await);
}

/// By a member who comes for a day, by an answer that does not come, by a time when nobody asked.
pub async fn an_emptiness_that_is_broken_begins_anew(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    rig.directory.set_group("acme", &[]);
    days(&rig, &sweep, 29).await;
    rig.directory.set_group("acme", &["sam"]);
    days(&rig, &sweep, 1).await;
    rig.directory.set_group("acme", &[]);
    days(&rig, &sweep, 25).await;
    rig.directory.set_failing(true);
    assert_eq!(days(&rig, &sweep, 4).await.doubts, 1);
    rig.directory.set_failing(false);
    days(&rig, &sweep, 25).await;
    rig.clock.advance(31 * DAY);
    days(&rig, &sweep, 1).await;
    assert!(graph_is_there(&rig).await);
    days(&rig, &sweep, 30).await;
    assert!(!graph_is_there(&rig).await);
}

async fn pull_from(rig: &Rig, device: &TestDevice, cursor: &str) -> Outcome<Pulled> {
    let access = access(rig, device).await;
    let query = argala_core::PullQuery {
        cursor: Some(cursor.to_owned()),
        variant: "application/json",
        ..argala_core::PullQuery::default()
    };
    rig.relay.pull(&access, query).await
}

/// Whoever has not heard of the deletion starts over; whoever has goes on.
pub async fn old_tombstones_go_and_older_cursors_expire(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    rig.push(&rig.laptop, "goes", "content")
        .await
        .expect("pushed");
    rig.push(&rig.laptop, "stays", "content")
        .await
        .expect("pushed");
    let before = rig.pull(&rig.alex).await.expect("pulled").page.cursor;
    let delete = {
        let access = access(&rig, &rig.laptop).await;
        let mut push: PushRequest = rig.one(&rig.laptop, &access, "goes", "");
        push.records = vec![rig.laptop.tombstone(access.key(), "goes", 1)];
        rig.relay.push(&access, push, None).await
    };
    assert_eq!(delete.expect("deleted").accepted, 1);
    let after = rig.pull(&rig.alex).await.expect("pulled").page.cursor;
    rig.clock.advance(90 * DAY);
    assert_eq!(
        pass(&sweep).await.tombstones,
        0,
        "90 days to the millisecond"
    );
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(pass(&sweep).await.tombstones, 1);
    let graph = rig.store.graph(&acme()).await.expect("answered");
    assert_eq!(graph.expect("there").floor, 3);
    assert_eq!(charged(&rig).await, 0);
    assert!(matches!(
        rejection(pull_from(&rig, &rig.alex, &before).await),
        Rejection::CursorInvalid { .. }
    ));
    pull_from(&rig, &rig.alex, &after).await.expect("goes on");
    let all = rig.pull(&rig.alex).await.expect("pulled").page;
    assert_eq!(all.records.len(), 1);
    assert_eq!(pass(&sweep).await.tombstones, 0);
}

/// Whatever was swept meanwhile.
pub async fn an_idempotency_key_answers_for_a_day(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    let push = async || {
        let access = access(&rig, &rig.laptop).await;
        let request = rig.one(&rig.laptop, &access, "record", "first");
        let key = IdempotencyKey {
            key: "key".to_owned(),
            body_sha256: [0; 32],
        };
        let pushed = rig.relay.push(&access, request, Some(key)).await;
        pushed.expect("answered").head
    };
    assert_eq!(push().await, 1);
    rig.push(&rig.laptop, "record", "second")
        .await
        .expect("pushed");
    // Whichever slots the sweep takes for old on the way, the key is in none of them.
    for _ in 0..24 {
        assert_eq!(pass(&sweep).await.idempotency_keys, 0);
        assert_eq!(push().await, 1, "what it was answered before");
        rig.clock.advance(DAY / 24);
    }
    rig.clock.advance(DAY);
    assert_eq!(pass(&sweep).await.idempotency_keys, 1);
    assert_eq!(push().await, 3, "a push of its own");
}

/// A put that came through after its row had gone. One that is young may be under way.
pub async fn an_object_that_no_row_names_is_removed(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    put(&rig, BlobPolicy::Keep, None).await;
    let stray = ObjectKey::new(rig.store.instance(), [9; 16]);
    let foreign = ObjectKey::new("0123456789abcdef", [9; 16]);
    for object in [&stray, &foreign] {
        let body = Box::pin(stream::iter([Ok(Bytes::from_static(b"stray"))]));
        rig.blobs.put(object, 5, body).await.expect("stored");
    }
    // The blob store has a clock of its own, which is the world's.
    assert_eq!(pass(&rig.sweep()).await.leaked, 0, "it is young");
    rig.clock.advance(3_650 * DAY);
    let sweep = rig.sweep();
    assert_eq!(pass(&sweep).await.leaked, 1);
    let there = async |object| rig.blobs.get(object, None).await.expect("asked").is_some();
    assert!(!there(&stray).await && there(&foreign).await);
    assert!(is_there(&rig).await, "what a row names stays");
    assert_eq!(pass(&sweep).await.leaked, 0);
}

/// Objects of the store's that no row names, of these numbers, and a clock by which they are old.
async fn strays<const N: usize>(rig: &Rig, numbers: [u8; N]) -> [ObjectKey; N] {
    let strays = numbers.map(|number| ObjectKey::new(rig.store.instance(), [number; 16]));
    for object in &strays {
        let body = Box::pin(stream::iter([Ok(Bytes::from_static(b"stray"))]));
        rig.blobs.put(object, 5, body).await.expect("stored");
    }
    rig.clock.advance(3_650 * DAY);
    strays
}

/// In two rounds, of which the first ends with the last name.
pub async fn a_comparison_that_begins_in_the_middle_comes_round(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    let options = SweepOptions {
        pages: 1,
        ..SweepOptions::default()
    };
    let sweep = Sweep::new(
        Arc::clone(&rig.store),
        Arc::clone(&rig.blobs),
        Arc::new(rig.directory.clone()),
        options,
    )
    .clock(Arc::new(rig.clock.clone()))
    .compare_from([0x80; 16]);
    strays(&rig, [0x10, 0x7f, 0x81, 0xf0, 0xff]).await;
    assert_eq!(pass(&sweep).await.leaked, 3);
    assert_eq!(pass(&sweep).await.leaked, 2);
    strays(&rig, [0x10]).await;
    assert_eq!(pass(&sweep).await.leaked, 1, "and so on, an hour later");
}

/// Removals fail for as long as this says so.
#[derive(Default)]
struct Broken(AtomicBool);

#[async_trait]
impl Interpose for Broken {
    async fn before(&self, operation: &'static str) -> StoreResult<()> {
        if operation == "delete" && self.0.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("remove an object", "told to fail"));
        }
        Ok(())
    }
}

/// A sweep whose removals do.
fn broken_sweep(rig: &Rig, broken: &Arc<Broken>, options: SweepOptions) -> Sweep {
    let blobs: Arc<dyn BlobStore> =
        Interposed::new(Arc::clone(&rig.blobs), Arc::clone(broken) as _);
    Sweep::new(
        Arc::clone(&rig.store),
        blobs,
        Arc::new(rig.directory.clone()),
        options,
    )
    .clock(Arc::new(rig.clock.clone()))
    .events(Arc::new(rig.events.clone()))
}

/// It is counted, comes up again, and is told of once.
pub async fn an_object_that_cannot_be_removed_comes_up_again(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let broken = Arc::new(Broken::default());
    let sweep = broken_sweep(&rig, &broken, SweepOptions::default());
    put(&rig, BlobPolicy::Expire, Some(60)).await;
    rig.clock.advance(Duration::from_secs(61));
    drop(rig.events.take());
    broken.0.store(true, Ordering::SeqCst);
    let report = pass(&sweep).await;
    assert_eq!((report.failed, report.forgotten.len()), (1, 0));
    assert_eq!(charged(&rig).await, 0, "its bytes are given back at once");
    for _ in 0..3 {
        rig.clock.advance(Duration::from_secs(61));
        assert_eq!(pass(&sweep).await.failed, 1);
        let again = pass(&sweep).await;
        assert_eq!(again, SweepReport::default(), "others have their turn");
    }
    broken.0.store(false, Ordering::SeqCst);
    rig.clock.advance(Duration::from_secs(61));
    assert_eq!(pass(&sweep).await.forgotten["expired"], 1);
    assert_eq!(forgotten(&rig), [ForgetReason::Expired]);
    assert_eq!(pass(&sweep).await, SweepReport::default());
}

/// However much is due.
pub async fn a_blob_store_that_fails_is_asked_once_a_pass(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    for number in 0..3 {
        let id = format!("a-blob-of-number-{number}");
        put_as(&rig, &id, BlobPolicy::Expire, Some(60)).await;
    }
    rig.clock.advance(Duration::from_secs(61));
    let broken = Arc::new(Broken::default());
    broken.0.store(true, Ordering::SeqCst);
    let options = SweepOptions {
        batch: 1,
        ..SweepOptions::default()
    };
    let sweep = broken_sweep(&rig, &broken, options);
    assert_eq!(pass(&sweep).await.failed, 1);
    broken.0.store(false, Ordering::SeqCst);
    assert_eq!(pass(&sweep).await.forgotten["expired"], 2);
}

/// And the next goes on.
pub async fn a_pass_ends_in_time(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let access = access(&rig, &rig.laptop).await;
    let mut delete: PushRequest = rig.one(&rig.laptop, &access, "goes", "");
    let gone = |id| rig.laptop.tombstone(access.key(), id, 1);
    delete.records = vec![gone("one"), gone("two"), gone("three")];
    rig.relay.push(&access, delete, None).await.expect("pushed");
    rig.clock.advance(91 * DAY);
    let options = SweepOptions {
        batch: 1,
        stage_time: Duration::ZERO,
        ..SweepOptions::default()
    };
    let sweep = broken_sweep(&rig, &Arc::default(), options);
    for _ in 0..3 {
        let report = pass(&sweep).await;
        assert_eq!((report.tombstones, report.cut_short), (1, true));
    }
    assert_eq!(pass(&sweep).await.tombstones, 0);
}

/// Whoever deleted it is at work on its object for a minute.
pub async fn a_blob_that_is_being_deleted_is_left_to_its_caller(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    put(&rig, BlobPolicy::Keep, None).await;
    let forget = ForgetBlob {
        key: acme(),
        id: blob_id(ID),
        by: rig.laptop.to_ref(),
        now: rig.clock.now(),
    };
    let marked = rig.store.forget_blob(forget).await.expect("answered");
    assert!(marked.is_some());
    let sweep = rig.sweep();
    drop(rig.events.take());
    rig.clock.advance(Duration::from_secs(60));
    assert_eq!(pass(&sweep).await, SweepReport::default());
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(pass(&sweep).await.forgotten["requested"], 1);
    assert_eq!(forgotten(&rig), [ForgetReason::Requested]);
}

/// A store that fails is not asked over and over, and one object holds up no other for ever.
pub async fn leaked_objects_that_cannot_be_removed_come_up_again(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    let broken = Arc::new(Broken::default());
    let sweep = broken_sweep(&rig, &broken, SweepOptions::default());
    strays(&rig, [1, 2, 3]).await;
    broken.0.store(true, Ordering::SeqCst);
    assert_eq!(pass(&sweep).await.failed, 1, "and no other is tried");
    broken.0.store(false, Ordering::SeqCst);
    assert_eq!(pass(&sweep).await.leaked, 2, "those behind it");
    assert_eq!(pass(&sweep).await, SweepReport::default());
    rig.clock.advance(DAY / 24);
    assert_eq!(pass(&sweep).await.leaked, 1, "in the next round");
}

/// Each kind, with why; and all of it is still there.
pub async fn what_a_pass_would_forget_is_told(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let sweep = rig.sweep();
    assert!(sweep.preview(10).await.expect("told").due.is_empty());
    put(&rig, BlobPolicy::Expire, Some(60)).await;
    let access = access(&rig, &rig.laptop).await;
    let mut delete: PushRequest = rig.one(&rig.laptop, &access, "goes", "");
    delete.records = vec![rig.laptop.tombstone(access.key(), "goes", 1)];
    rig.relay.push(&access, delete, None).await.expect("pushed");
    rig.clock.advance(91 * DAY);
    let told = sweep.preview(10).await.expect("told");
    let due: Vec<_> = told
        .due
        .iter()
        .map(|it| (it.what, it.why, it.count))
        .collect();
    assert_eq!(due, [("blob", "expired", 1), ("tombstones", "old", 1)]);
    assert!(!told.more && told.doubts == 0);
    assert_eq!(
        sweep.preview(10).await.expect("told"),
        told,
        "nothing has changed"
    );
    let report = pass(&sweep).await;
    assert_eq!((report.forgotten["expired"], report.tombstones), (1, 1));
    assert!(sweep.preview(10).await.expect("told").due.is_empty());
}
