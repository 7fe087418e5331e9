//! A store with devices in it, and short ways to ask it for things.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use argala_core::{
    Fault, Outcome, Rejection,
    ports::{
        ObjectKey, SweepStore,
        store::{
            Blob, CommitBlob, Committed, Counters, ForgetBlob, Grant, Granted, Pull, PullPage,
            Pulled, Push, PushOutcome, PushedRecord, ReserveBlob, Reserved, Revoke, Revoked,
            Rotate, Rotated, SignatureVerdict, WrapsQuery,
        },
    },
    rules::rotate::fingerprint,
};
use argala_wire::{
    BlobId, MemberId, StorageKey, Timestamp,
    blobs::BlobPolicy,
    devices::DeviceRef,
    keys::{GrantWrap, Wrap},
    limits::{Pages, Quotas},
    records::{PulledRecord, PushRecord},
};

use crate::{EPOCH, TestDevice, conformance::Fresh, group};

/// The graph that most cases speak of.
pub(crate) fn acme() -> StorageKey {
    StorageKey::group(&group("acme"))
}

/// So many milliseconds after the beginning.
pub(crate) fn at(millis: u64) -> Timestamp {
    EPOCH.saturating_add(Duration::from_millis(millis))
}

/// What a blob expires at, so many milliseconds after the beginning.
pub(crate) fn ttl(millis: u64) -> Option<Timestamp> {
    Some(at(millis))
}

/// Why the store refused.
///
/// # Panics
/// Where it did not, or failed.
#[track_caller]
pub(crate) fn refused<T: fmt::Debug>(outcome: Outcome<T>) -> Rejection {
    match outcome {
        Err(Fault::Rejected(rejection)) => rejection,
        Err(Fault::Store(error)) => panic!("the store failed: {error:?}"),
        Ok(answer) => panic!("not refused: {answer:?}"),
    }
}

pub(crate) struct Scene {
    fresh: Fresh<dyn SweepStore>,
    turn: AtomicUsize,
    objects: AtomicU64,
}

impl Scene {
    pub(crate) fn new(fresh: Fresh<dyn SweepStore>) -> Self {
        Self {
            fresh,
            turn: AtomicUsize::new(0),
            objects: AtomicU64::new(0),
        }
    }

    /// The store, by way of every replica in turn.
    pub(crate) fn store(&self) -> &dyn SweepStore {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.fresh.replica(turn).as_ref()
    }

    /// The same, for a task.
    pub(crate) fn handle(&self) -> Arc<dyn SweepStore> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Arc::clone(self.fresh.replica(turn))
    }

    /// A registered device.
    pub(crate) async fn device(&self, member: &str, device: &str) -> TestDevice {
        let device = TestDevice::new(member, device);
        let registered = self.store().register(device.register(EPOCH)).await;
        registered.expect("registered");
        device
    }

    /// Several of them.
    pub(crate) async fn devices<const N: usize>(
        &self,
        names: [(&str, &str); N],
    ) -> [TestDevice; N] {
        let mut devices = Vec::with_capacity(N);
        for (member, device) in names {
            devices.push(self.device(member, device).await);
        }
        devices.try_into().expect("as many as there are names")
    }

    /// Asks to rotate by the first of `holders`, who are every active device of their members.
    pub(crate) fn rotate_request(
        &self,
        key: &StorageKey,
        epoch: u64,
        holders: &[&TestDevice],
    ) -> Rotate {
        let members: BTreeSet<MemberId> = holders
            .iter()
            .map(|device| device.to_ref().member_id)
            .collect();
        let wrap = |device: &&TestDevice| device.rotate_wrap(&wrap_text(epoch, &device.to_ref()));
        let wraps: Vec<_> = holders.iter().map(wrap).collect();
        Rotate {
            key: key.clone(),
            by: holders[0].to_ref(),
            members: members.into_iter().collect(),
            epoch,
            fingerprint: fingerprint(&wraps),
            wraps,
            incarnation: 1_000 + epoch % 1_000,
            now: at(epoch % 1_000),
        }
    }

    pub(crate) async fn rotate(
        &self,
        key: &StorageKey,
        epoch: u64,
        holders: &[&TestDevice],
    ) -> Rotated {
        let rotated = self
            .store()
            .rotate(self.rotate_request(key, epoch, holders));
        rotated.await.expect("rotated")
    }

    pub(crate) fn grant_request(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        members: &[&str],
        wraps: Vec<GrantWrap>,
    ) -> Grant {
        Grant {
            key: key.clone(),
            by: by.to_ref(),
            members: members.iter().map(|name| crate::member(name)).collect(),
            wraps,
            now: at(500),
        }
    }

    pub(crate) async fn grant(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        members: &[&str],
        wraps: Vec<GrantWrap>,
    ) -> Granted {
        let granted = self
            .store()
            .grant(self.grant_request(key, by, members, wraps));
        granted.await.expect("granted")
    }

    pub(crate) async fn revoke(&self, by: &TestDevice, target: &TestDevice) -> Revoked {
        let request = Revoke {
            by: by.to_ref(),
            device_id: target.to_ref().device_id,
            now: at(900),
        };
        self.store().revoke(request).await.expect("revoked")
    }

    pub(crate) fn push_request(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        records: Vec<PushRecord>,
    ) -> Push {
        Push {
            key: key.clone(),
            by: by.to_ref(),
            records: records
                .into_iter()
                .map(|record| PushedRecord {
                    record,
                    signature: SignatureVerdict::Good,
                })
                .collect(),
            if_head: None,
            atomic: false,
            idempotency: None,
            now: at(1_000),
            quotas: Quotas::default(),
        }
    }

    pub(crate) async fn push(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        records: Vec<PushRecord>,
    ) -> PushOutcome {
        let pushed = self.store().push(self.push_request(key, by, records));
        pushed.await.expect("pushed")
    }

    /// Pushes one small record for each id, all of which must be taken.
    pub(crate) async fn fill(&self, key: &StorageKey, by: &TestDevice, epoch: u64, ids: &[&str]) {
        let record = |id: &&str| by.record(key, id, epoch, id.as_bytes());
        let pushed = self.push(key, by, ids.iter().map(record).collect()).await;
        assert_eq!(pushed.answer.accepted, ids.len() as u64);
    }

    pub(crate) fn pull_request(&self, key: &StorageKey, by: &TestDevice, limit: usize) -> Pull {
        Pull {
            key: key.clone(),
            device: by.to_ref(),
            cursor: None,
            limit,
            epoch: None,
            variant: "json",
            known: Vec::new(),
            pages: Pages::default(),
        }
    }

    pub(crate) async fn page(&self, request: Pull) -> PullPage {
        match self.store().pull(request).await.expect("pulled") {
            Pulled::Page(page) => page,
            Pulled::Unchanged { .. } => panic!("nothing is known"),
        }
    }

    /// Every page of a walk to the end.
    pub(crate) async fn walk(&self, first: &Pull) -> Vec<PullPage> {
        let mut request = first.clone();
        let mut pages = Vec::new();
        loop {
            let page = self.page(request.clone()).await;
            request.cursor = Some(page.page.cursor.clone());
            let more = page.page.more;
            pages.push(page);
            if !more {
                return pages;
            }
        }
    }

    /// All that `by` may read.
    pub(crate) async fn records(&self, key: &StorageKey, by: &TestDevice) -> Vec<PulledRecord> {
        let pages = self.walk(&self.pull_request(key, by, 1_000)).await;
        pages
            .into_iter()
            .flat_map(|page| page.page.records)
            .collect()
    }

    /// All wraps of a device.
    pub(crate) async fn wraps(&self, key: &StorageKey, device: &DeviceRef) -> Vec<Wrap> {
        let query = WrapsQuery {
            key: key.clone(),
            device: device.clone(),
            after: 0,
            limit: 1_000,
        };
        let page = self.store().wraps(&query).await;
        page.expect("the store answers").wraps
    }

    /// The graph's counters, which must be the sums that they stand for, now that nothing else is
    /// under way.
    pub(crate) async fn counters(&self, key: &StorageKey) -> Counters {
        let counters = self.recount(key).await;
        let graph = self.store().graph(key).await.expect("the store answers");
        assert_eq!(graph.expect("the graph is there").counters, counters);
        counters
    }

    /// The graph's counters, which must be the sums that they stand for at every moment.
    pub(crate) async fn recount(&self, key: &StorageKey) -> Counters {
        let recount = self.store().recount(key).await.expect("the store answers");
        let recount = recount.expect("the graph is there");
        assert_eq!(recount.stored, recount.counted, "the counters are the sums");
        recount.stored
    }

    /// A fresh object key.
    pub(crate) fn object(&self) -> ObjectKey {
        let number = self.objects.fetch_add(1, Ordering::Relaxed);
        let mut random = [0; 16];
        random[8..].copy_from_slice(&number.to_be_bytes());
        ObjectKey::new(self.store().instance(), random)
    }

    pub(crate) fn reserve_request(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        id: &BlobId,
        size: u64,
    ) -> ReserveBlob {
        ReserveBlob {
            key: key.clone(),
            id: id.clone(),
            by: by.to_ref(),
            object: self.object(),
            size,
            policy: BlobPolicy::Keep,
            expires_at: None,
            now: at(2_000),
            max_bytes_per_graph: 1_000,
        }
    }

    /// Reserves, which must be possible.
    pub(crate) async fn reserve(&self, request: &ReserveBlob) {
        let reserved = self.store().reserve_blob(request.clone()).await;
        assert_eq!(reserved.expect("reserved"), Reserved::Pending);
    }

    pub(crate) fn commit_request(&self, reserved: &ReserveBlob, content: u8) -> CommitBlob {
        CommitBlob {
            key: reserved.key.clone(),
            object: reserved.object.clone(),
            by: reserved.by.clone(),
            sha256: [content; 32],
            now: at(2_001),
        }
    }

    pub(crate) async fn commit(&self, reserved: &ReserveBlob, content: u8) -> Committed {
        let committed = self
            .store()
            .commit_blob(self.commit_request(reserved, content));
        committed.await.expect("answered")
    }

    /// Uploads a blob, which must be possible.
    pub(crate) async fn upload(&self, request: &ReserveBlob, content: u8) -> Blob {
        self.reserve(request).await;
        match self.commit(request, content).await {
            Committed::Live(blob) => blob,
            other => panic!("not live: {other:?}"),
        }
    }

    pub(crate) async fn forget(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        id: &BlobId,
    ) -> Option<Blob> {
        let request = ForgetBlob {
            key: key.clone(),
            id: id.clone(),
            by: by.to_ref(),
            now: at(2_002),
        };
        self.store().forget_blob(request).await.expect("answered")
    }

    pub(crate) async fn blob(&self, key: &StorageKey, id: &BlobId, now: Timestamp) -> Option<Blob> {
        let blob = self.store().blob(key, id, now).await;
        blob.expect("the store answers")
    }
}

/// What the wrap of an epoch for a device says.
pub(crate) fn wrap_text(epoch: u64, device: &DeviceRef) -> String {
    format!(
        "epoch {epoch} for {}/{}",
        device.member_id, device.device_id
    )
}
