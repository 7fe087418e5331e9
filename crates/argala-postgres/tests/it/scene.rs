//! A database of a test's own, and short ways to ask it for things.

use std::sync::{Arc, Mutex};

use argala_core::{
    Outcome,
    ports::{
        ObjectKey, Store,
        store::{
            Grant, GraphDevicesQuery, GraphsQuery, Pull, Pulled, Push, PushOutcome, PushedRecord,
            ReserveBlob, Rotate, Rotated, SignatureVerdict, WrapsQuery,
        },
    },
    rules::rotate::fingerprint,
};
use argala_postgres::{Options, Postgres};
use argala_testkit::{
    EPOCH, TestDevice, group, member,
    servers::{Database, Session},
};
use argala_wire::{
    BlobId, MemberId, StorageKey,
    blobs::BlobPolicy,
    limits::{Pages, Quotas},
    records::{PushRecord, PushResponse},
};

use crate::database::{migrated, options};

/// The statements that have been sent since they were last taken.
#[derive(Clone, Default)]
pub(crate) struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// How many pushes each transaction of pushes carried.
#[derive(Clone, Default)]
pub(crate) struct Commits(Arc<Mutex<Vec<usize>>>);

impl Commits {
    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) struct Scene {
    pub(crate) db: Arc<Postgres>,
    pub(crate) statements: Statements,
    pub(crate) commits: Commits,
    pub(crate) database: Database,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let database = migrated().await;
        let (statements, commits) = (Statements::default(), Commits::default());
        let mut options = options(database.url());
        let told = statements.clone();
        options.probe = Some(Arc::new(move |sql| {
            told.0.lock().unwrap().push(sql.to_owned());
        }));
        let told = commits.clone();
        options.commits = Some(Arc::new(move |commit| {
            told.0.lock().unwrap().push(commit.pushes);
        }));
        change(&mut options);
        let db = Postgres::open(&options).await.unwrap();
        Self {
            db: Arc::new(db),
            statements,
            commits,
            database,
        }
    }

    /// A connection beside the relay's, as an operator's tool would open one.
    pub(crate) async fn beside(&self) -> Session {
        Session::open(&self.database.url()).await
    }

    /// Registered devices `d0`, `d1` … of one member, with no ceiling on how many.
    pub(crate) async fn devices(&self, member: &str, count: usize) -> Vec<TestDevice> {
        let mut devices = Vec::with_capacity(count);
        for at in 0..count {
            let device = TestDevice::new(member, &format!("d{at}"));
            let mut request = device.register(EPOCH);
            request.max_devices = u64::MAX;
            self.db.register(request).await.unwrap();
            devices.push(device);
        }
        devices
    }

    /// Begins `epoch` of `key` for `holders`, the first of which asks.
    pub(crate) async fn rotate(
        &self,
        key: &StorageKey,
        epoch: u64,
        holders: &[TestDevice],
    ) -> Rotated {
        self.db.rotate(rotate(key, epoch, holders)).await.unwrap()
    }

    pub(crate) async fn push(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        records: Vec<PushRecord>,
    ) -> PushResponse {
        let pushed: Outcome<PushOutcome> = self.db.push(push(key, by, records)).await;
        pushed.unwrap().answer
    }

    /// Every record that `by` may read.
    pub(crate) async fn pull_all(
        &self,
        key: &StorageKey,
        by: &TestDevice,
    ) -> Vec<argala_wire::records::PulledRecord> {
        let mut request = pull(key, by, 1_000);
        let mut records = Vec::new();
        loop {
            let Pulled::Page(page) = self.db.pull(request.clone()).await.unwrap() else {
                panic!("nothing is known");
            };
            records.extend(page.page.records);
            request.cursor = Some(page.page.cursor);
            if !page.page.more {
                return records;
            }
        }
    }

    /// Holds that the graph's counters are the sums that they stand for.
    pub(crate) async fn counters_are_exact(&self, key: &StorageKey) {
        let recount = self.db.recount(key).await.unwrap().unwrap();
        assert_eq!(recount.stored, recount.counted);
    }
}

/// The graph of a group.
pub(crate) fn graph(name: &str) -> StorageKey {
    StorageKey::group(&group(name))
}

pub(crate) fn members_of(devices: &[TestDevice]) -> Vec<MemberId> {
    let mut members: Vec<_> = devices.iter().map(|it| it.to_ref().member_id).collect();
    members.dedup();
    members
}

pub(crate) fn rotate(key: &StorageKey, epoch: u64, holders: &[TestDevice]) -> Rotate {
    let wraps: Vec<_> = holders
        .iter()
        .map(|device| device.rotate_wrap(&format!("epoch {epoch}")))
        .collect();
    Rotate {
        key: key.clone(),
        by: holders[0].to_ref(),
        members: members_of(holders),
        epoch,
        fingerprint: fingerprint(&wraps),
        wraps,
        incarnation: 7,
        now: EPOCH,
    }
}

pub(crate) fn grant(key: &StorageKey, by: &TestDevice, to: &[TestDevice], epoch: u64) -> Grant {
    Grant {
        key: key.clone(),
        by: by.to_ref(),
        members: members_of(to),
        wraps: to
            .iter()
            .map(|device| device.grant_wrap(epoch, "granted"))
            .collect(),
        now: EPOCH,
    }
}

pub(crate) fn push(key: &StorageKey, by: &TestDevice, records: Vec<PushRecord>) -> Push {
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
        now: EPOCH,
        quotas: Quotas::default(),
    }
}

/// So many records of epoch 1, `r0`, `r1` …, each with `content`.
pub(crate) fn records(
    key: &StorageKey,
    by: &TestDevice,
    count: usize,
    content: &str,
) -> Vec<PushRecord> {
    (0..count)
        .map(|at| by.record(key, &format!("r{at}"), 1, content.as_bytes()))
        .collect()
}

pub(crate) fn pull(key: &StorageKey, by: &TestDevice, limit: usize) -> Pull {
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

pub(crate) fn graphs_query(by: &TestDevice) -> GraphsQuery {
    GraphsQuery {
        device: by.to_ref(),
        groups: None,
        after: None,
        limit: 1_000,
    }
}

pub(crate) fn devices_query(key: &StorageKey, members: &[&str]) -> GraphDevicesQuery {
    GraphDevicesQuery {
        key: key.clone(),
        members: members.iter().map(|text| member(text)).collect(),
        former: true,
        after: None,
        limit: 1_000,
    }
}

pub(crate) fn wraps_query(key: &StorageKey, by: &TestDevice) -> WrapsQuery {
    WrapsQuery {
        key: key.clone(),
        device: by.to_ref(),
        after: 0,
        limit: 1_000,
    }
}

/// The name of an object, of this number.
pub(crate) fn object(db: &Postgres, number: u64) -> ObjectKey {
    let mut random = [0; 16];
    random[8..].copy_from_slice(&number.to_be_bytes());
    ObjectKey::new(db.instance(), random)
}

pub(crate) fn reserve(
    key: &StorageKey,
    by: &TestDevice,
    id: BlobId,
    object: ObjectKey,
) -> ReserveBlob {
    ReserveBlob {
        key: key.clone(),
        id,
        by: by.to_ref(),
        object,
        size: 10,
        policy: BlobPolicy::Keep,
        expires_at: None,
        now: EPOCH,
        max_bytes_per_graph: u64::MAX,
    }
}
