//! Blobs from the first byte to the last.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use argala_core::{
    Access, Fault, Outcome, Rejection, StoreError, StoreErrorKind, StoreResult, Upload,
    ports::{
        ByteStream, ObjectKey,
        store::{ReserveBlob, Reserved},
    },
};
use argala_wire::blobs::{BlobPolicy, BlobResponse};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::{GROUP, RelayPorts, Rig, rejection};
use crate::{Interpose, Interposed, blob_id, conformance::Fresh, eventually};

const ID: &str = "a-blob-of-sixteen";

fn content(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at % 251) as u8).collect()
}

/// The bytes in pieces of no round size.
fn pieces(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes
        .chunks(70_001)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Box::pin(stream::iter(pieces))
}

fn upload(bytes: &[u8]) -> Upload {
    Upload {
        id: blob_id(ID),
        size: bytes.len() as u64,
        policy: BlobPolicy::Keep,
        ttl_seconds: None,
        digest: None,
        body: pieces(bytes),
    }
}

async fn access(rig: &Rig) -> Access {
    rig.open(&rig.laptop, GROUP).await.expect("a member")
}

async fn put(rig: &Rig, upload: Upload) -> Outcome<(BlobResponse, bool)> {
    rig.relay.put_blob(&access(rig).await, upload).await
}

async fn read(rig: &Rig, range: Option<std::ops::Range<u64>>) -> Outcome<Vec<u8>> {
    let access = rig.open(&rig.alex, GROUP).await?;
    let blob = rig.relay.blob(&access, &blob_id(ID)).await?;
    let bytes = rig.relay.read_blob(&access, &blob, range).await?;
    Ok(bytes
        .try_collect::<Vec<_>>()
        .await
        .expect("no fault within")
        .concat())
}

/// Asked of the store: a test that waits must not use up an allowance.
async fn charged(rig: &Rig) -> u64 {
    let key = argala_wire::StorageKey::group(&crate::group("acme"));
    let recount = rig
        .store
        .recount(&key)
        .await
        .expect("a recount")
        .expect("the graph is there");
    assert_eq!(recount.stored, recount.counted);
    recount.stored.blob_bytes
}

/// Put, told again, read whole and in part, deleted.
pub async fn an_upload_is_there_whole(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let bytes = content(600_000);
    let sha256: [u8; 32] = Sha256::digest(&bytes).into();
    let (blob, is_new) = put(
        &rig,
        Upload {
            digest: Some(sha256),
            ..upload(&bytes)
        },
    )
    .await
    .expect("stores");
    assert!(is_new);
    assert_eq!(
        (blob.size, blob.sha256.as_slice()),
        (600_000, sha256.as_slice())
    );
    assert_eq!(charged(&rig).await, 600_000);
    assert_eq!(read(&rig, None).await.expect("reads"), bytes);
    assert_eq!(
        read(&rig, Some(99_999..500_001)).await.expect("reads"),
        bytes[99_999..500_001]
    );
    let (again, is_new) = put(&rig, upload(&bytes)).await.expect("the same");
    assert!(!is_new);
    assert_eq!(again, blob);
    let mut other = bytes.clone();
    other[300_000] ^= 1;
    assert_eq!(
        rejection(put(&rig, upload(&other)).await),
        Rejection::BlobExists
    );
    assert_eq!(charged(&rig).await, 600_000);
    rig.relay
        .forget_blob(&access(&rig).await, blob_id(ID))
        .await
        .expect("deletes");
    assert_eq!(charged(&rig).await, 0);
    assert_eq!(rejection(read(&rig, None).await), Rejection::BlobNotFound);
    let again = rig
        .relay
        .forget_blob(&access(&rig).await, blob_id(ID))
        .await;
    assert_eq!(rejection(again), Rejection::BlobNotFound);
    assert_eq!(
        rig.events.take_names(),
        ["blob.put", "blob.put", "blob.forget"]
    );
}

/// Too few, too many, other ones: refused, nothing charged, nothing stored.
pub async fn bytes_that_are_not_as_announced_leave_nothing(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let bytes = content(200_000);
    let wrong = [
        Upload {
            size: 200_001,
            ..upload(&bytes)
        },
        Upload {
            size: 199_999,
            ..upload(&bytes)
        },
        Upload {
            size: 0,
            ..upload(&bytes)
        },
        Upload {
            digest: Some([7; 32]),
            ..upload(&bytes)
        },
    ];
    for upload in wrong {
        let rejected = rejection(put(&rig, upload).await);
        assert!(
            matches!(rejected, Rejection::DigestMismatch { .. }),
            "{rejected:?}"
        );
        assert_eq!(charged(&rig).await, 0);
        assert_eq!(rejection(read(&rig, None).await), Rejection::BlobNotFound);
    }
    let (blob, is_new) = put(&rig, upload(&[]))
        .await
        .expect("an empty blob is a blob");
    assert!(is_new && blob.size == 0);
    assert!(read(&rig, None).await.expect("reads").is_empty());
}

/// The connection breaks, or the caller's future is dropped: the bytes are given back at once.
pub async fn a_caller_who_hangs_up_gets_the_bytes_back(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let broken = |message: &str| io::Error::new(io::ErrorKind::ConnectionReset, message);
    let body: Vec<io::Result<Bytes>> =
        vec![Ok(Bytes::from(content(50_000))), Err(broken("hung up"))];
    let begun = Upload {
        size: 100_000,
        body: Box::pin(stream::iter(body)),
        ..upload(&[])
    };
    assert!(matches!(
        rejection(put(&rig, begun).await),
        Rejection::DigestMismatch { .. }
    ));
    assert_eq!(charged(&rig).await, 0);

    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<io::Result<Bytes>>();
    let body = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let access = access(&rig).await;
    let begun = Upload {
        size: 100_000,
        body: Box::pin(body),
        ..upload(&[])
    };
    {
        let waiting = rig.relay.put_blob(&access, begun);
        tokio::pin!(waiting);
        sender
            .send(Ok(Bytes::from(content(50_000))))
            .expect("somebody reads");
        loop {
            assert!(futures_util::poll!(&mut waiting).is_pending());
            if charged(&rig).await == 100_000 {
                break;
            }
        }
    }
    sender
        .send(Err(broken("hung up")))
        .expect("the upload outlives its caller");
    eventually("the bytes are given back", || async {
        (charged(&rig).await == 0).then_some(())
    })
    .await;
}

/// The second of two uploads that began before either ended learns what became of the first.
pub async fn two_uploads_of_one_id_are_told_apart(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let (one, other) = (content(300_000), vec![9; 300_000]);
    let begin = |bytes: &[u8]| {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<io::Result<Bytes>>();
        let body = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let upload = Upload {
            body: Box::pin(body),
            ..upload(bytes)
        };
        (sender, upload)
    };
    let (first, first_upload) = begin(&one);
    let (second, second_upload) = begin(&one);
    let (third, third_upload) = begin(&other);
    let finish = async {
        eventually("all three are charged", || async {
            (charged(&rig).await == 900_000).then_some(())
        })
        .await;
        for (sender, bytes) in [(first, &one), (second, &one), (third, &other)] {
            sender
                .send(Ok(Bytes::from(bytes.clone())))
                .expect("somebody reads");
            drop(sender);
        }
    };
    let (first, second, third, ()) = tokio::join!(
        put(&rig, first_upload),
        put(&rig, second_upload),
        put(&rig, third_upload),
        finish,
    );
    let live = read(&rig, None).await.expect("one is live");
    assert_eq!(charged(&rig).await, 300_000);
    if live == one {
        let fresh: Vec<_> = [first, second]
            .into_iter()
            .map(|put| put.expect("stored").1)
            .collect();
        assert_ne!(fresh[0], fresh[1], "one of them is new");
        assert_eq!(rejection(third), Rejection::BlobExists);
    } else {
        assert_eq!(live, other);
        assert!(third.expect("stored").1);
        assert_eq!(rejection(first), Rejection::BlobExists);
        assert_eq!(rejection(second), Rejection::BlobExists);
    }
}

/// The same bytes are sent again, and the blob is deleted before the last of them: there is nothing
/// that a 200 could speak of.
pub async fn a_blob_that_goes_while_it_is_compared_is_not_confirmed(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let bytes = content(100_000);
    put(&rig, upload(&bytes)).await.expect("stores");
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<io::Result<Bytes>>();
    let body = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let again = Upload {
        body: Box::pin(body),
        ..upload(&bytes)
    };
    let delete = async {
        sender
            .send(Ok(Bytes::from(bytes[..1].to_vec())))
            .expect("somebody reads");
        rig.relay
            .forget_blob(&access(&rig).await, blob_id(ID))
            .await
            .expect("deletes");
        sender
            .send(Ok(Bytes::from(bytes[1..].to_vec())))
            .expect("somebody reads");
        drop(sender);
    };
    let (again, ()) = tokio::join!(put(&rig, again), delete);
    match again {
        // It began before the deletion, and found nothing to be the same as at its end.
        Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        // It began after: then it is a new blob, and is there.
        Ok((_, is_new)) => assert!(is_new && read(&rig, None).await.expect("reads") == bytes),
        Err(Fault::Rejected(rejection)) => panic!("{rejection:?}"),
    }
}

/// Loses the answer to one commit, as a connection does that breaks after the database has
/// committed.
struct DeafOnce(AtomicBool);

#[async_trait]
impl Interpose for DeafOnce {
    async fn after(&self, operation: &'static str) -> StoreResult<()> {
        if operation == "commit_blob" && !self.0.swap(true, Ordering::Relaxed) {
            let error = StoreError::unavailable(operation, "the answer was lost");
            return Err(error);
        }
        Ok(())
    }
}

/// The caller is told a fault, and the row is live: its object must be there.
pub async fn an_upload_whose_commit_was_not_heard_of_keeps_its_object(fresh: Fresh<RelayPorts>) {
    let ports = fresh.replica(0);
    let ports = RelayPorts {
        store: Interposed::new(
            Arc::clone(&ports.store),
            Arc::new(DeafOnce(AtomicBool::new(false))),
        ),
        blobs: Arc::clone(&ports.blobs),
    };
    let rig = Rig::new(&ports);
    rig.keyed().await;
    let bytes = content(100_000);
    match put(&rig, upload(&bytes)).await {
        Err(Fault::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&rig, None).await.expect("its object is there"), bytes);
    let (_, is_new) = put(&rig, upload(&bytes)).await.expect("the same");
    assert!(!is_new);
    assert_eq!(charged(&rig).await, 100_000);
}

/// There is no last byte to hand over, and so the answer itself is the delivery.
pub async fn an_empty_blob_is_delivered_too(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let deliver = Upload {
        policy: BlobPolicy::Deliver,
        ..upload(&[])
    };
    put(&rig, deliver).await.expect("stores");
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    let row = rig.relay.blob(&access, &blob_id(ID)).await.expect("live");
    assert!(read(&rig, None).await.expect("reads").is_empty());
    eventually("the delivery is noted", || async {
        let by = rig.store.fetched_by(&row.graph, &row.object).await;
        (by.expect("a list") == [rig.alex.to_ref()]).then_some(())
    })
    .await;
}

/// What the sweep will go by is noted for a whole read alone.
pub async fn a_whole_read_is_a_delivery_and_a_part_is_none(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let deliver = Upload {
        policy: BlobPolicy::Deliver,
        ..upload(&content(900_000))
    };
    let (blob, _) = put(&rig, deliver).await.expect("stores");
    assert!(blob.expires_at.is_some());
    read(&rig, Some(0..899_999)).await.expect("reads");
    let access = rig.open(&rig.alex, GROUP).await.expect("a member");
    let row = rig.relay.blob(&access, &blob_id(ID)).await.expect("live");
    let mut begun = rig
        .relay
        .read_blob(&access, &row, None)
        .await
        .expect("reads");
    begun.next().await.expect("a piece").expect("no fault");
    drop(begun);
    rig.relay.close().await;
    assert_eq!(
        rig.store
            .fetched_by(&row.graph, &row.object)
            .await
            .expect("a list"),
        []
    );
    read(&rig, None).await.expect("reads");
    eventually("the delivery is noted", || async {
        let by = rig
            .store
            .fetched_by(&row.graph, &row.object)
            .await
            .expect("a list");
        (by == [rig.alex.to_ref()]).then_some(())
    })
    .await;
}

/// Never an empty answer for bytes that are lost.
pub async fn a_lost_object_is_told_as_a_fault(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    put(&rig, upload(&content(1_000))).await.expect("stores");
    let row = rig
        .relay
        .blob(&access(&rig).await, &blob_id(ID))
        .await
        .expect("live");
    rig.blobs.delete(&row.object).await.expect("deletes");
    assert!(matches!(
        read(&rig, None).await,
        Err(Fault::Store(error)) if error.kind == StoreErrorKind::Corrupt
    ));
}

/// An expired blob is gone for every route; its id is free; the sweep tells it once.
pub async fn what_has_expired_is_gone_before_the_sweep_and_after(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let brief = |bytes: &[u8]| Upload {
        policy: BlobPolicy::Expire,
        ttl_seconds: Some(60),
        ..upload(bytes)
    };
    put(&rig, brief(&content(1_000))).await.expect("stores");
    rig.clock.advance(Duration::from_millis(59_999));
    assert_eq!(read(&rig, None).await.expect("reads").len(), 1_000);
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(rejection(read(&rig, None).await), Rejection::BlobNotFound);
    let gone = rig
        .relay
        .forget_blob(&access(&rig).await, blob_id(ID))
        .await;
    assert_eq!(rejection(gone), Rejection::BlobNotFound);
    let (_, is_new) = put(&rig, brief(&content(2_000)))
        .await
        .expect("the id is free");
    assert!(is_new);
    assert_eq!(charged(&rig).await, 2_000);
    rig.clock.advance(Duration::from_secs(3_600));
    drop(rig.events.take());
    let report = rig.sweep().pass().await.expect("sweeps");
    assert_eq!(report.forgotten["expired"], 2);
    assert_eq!(rig.events.take_names(), ["blob.forget", "blob.forget"]);
    assert_eq!(charged(&rig).await, 0);
    let report = rig.sweep().pass().await.expect("sweeps");
    assert!(report.forgotten.is_empty() && report.failed == 0);
}

/// A relay that died in the middle of an upload leaves a row and part of an object.
pub async fn the_sweep_ends_what_was_never_finished(fresh: Fresh<RelayPorts>) {
    use argala_core::ports::Clock as _;
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let object = ObjectKey::new(rig.store.instance(), [3; 16]);
    let reserved = rig
        .store
        .reserve_blob(ReserveBlob {
            key: access(&rig).await.key().clone(),
            id: blob_id(ID),
            by: rig.laptop.to_ref(),
            object: object.clone(),
            size: 5_000,
            policy: BlobPolicy::Keep,
            expires_at: None,
            now: rig.clock.now(),
            max_bytes_per_graph: 1 << 30,
        })
        .await
        .expect("reserves");
    assert_eq!(reserved, Reserved::Pending);
    rig.blobs
        .put(&object, 5_000, pieces(&content(5_000)))
        .await
        .expect("stores");
    let sweep = rig.sweep();
    assert!(
        sweep.pass().await.expect("sweeps").forgotten.is_empty(),
        "an upload may be under way"
    );
    assert_eq!(charged(&rig).await, 5_000);
    rig.clock.advance(Duration::from_secs(3_601));
    assert_eq!(sweep.pass().await.expect("sweeps").forgotten["orphaned"], 1);
    assert_eq!(charged(&rig).await, 0);
    assert!(rig.blobs.get(&object, None).await.expect("asks").is_none());
}
