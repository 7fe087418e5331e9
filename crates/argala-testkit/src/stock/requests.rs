//! Requests with what most tests want in them.

use std::sync::Arc;

use argala_core::{
    ports::{
        ObjectKey, Store,
        store::{
            Grant, GraphDevicesQuery, GraphsQuery, Pull, Push, PushedRecord, ReserveBlob, Rotate,
            SignatureVerdict, WrapsQuery,
        },
    },
    rules::rotate::fingerprint,
};
use argala_wire::{
    BlobId, MemberId, StorageKey,
    blobs::BlobPolicy,
    limits::{Pages, Quotas},
    records::PushRecord,
};

use crate::{EPOCH, TestDevice, group, member};

/// The graph of a group.
#[must_use]
pub fn graph(name: &str) -> StorageKey {
    StorageKey::group(&group(name))
}

/// The members whose devices these are, each once where they stand together.
#[must_use]
pub fn members_of(devices: &[TestDevice]) -> Vec<MemberId> {
    let mut members: Vec<_> = devices.iter().map(|it| it.to_ref().member_id).collect();
    members.dedup();
    members
}

/// A rotation to `epoch` for `holders`, the first of which asks.
///
/// # Panics
/// Where there is no holder.
#[must_use]
pub fn rotate(key: &StorageKey, epoch: u64, holders: &[TestDevice]) -> Rotate {
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

/// A grant of `epoch` to devices.
#[must_use]
pub fn grant(key: &StorageKey, by: &TestDevice, to: &[TestDevice], epoch: u64) -> Grant {
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

/// A push of records, each with a good signature, without any condition.
#[must_use]
pub fn push(key: &StorageKey, by: &TestDevice, records: Vec<PushRecord>) -> Push {
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
#[must_use]
pub fn records(key: &StorageKey, by: &TestDevice, count: usize, content: &str) -> Vec<PushRecord> {
    (0..count)
        .map(|at| by.record(key, &format!("r{at}"), 1, content.as_bytes()))
        .collect()
}

/// A pull from the beginning, in pages of `limit`.
#[must_use]
pub fn pull(key: &StorageKey, by: &TestDevice, limit: usize) -> Pull {
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

/// All graphs that a device knows.
#[must_use]
pub fn graphs_query(by: &TestDevice) -> GraphsQuery {
    GraphsQuery {
        device: by.to_ref(),
        groups: None,
        after: None,
        limit: 1_000,
    }
}

/// The devices of a graph, former ones too.
#[must_use]
pub fn devices_query(key: &StorageKey, members: &[&str]) -> GraphDevicesQuery {
    GraphDevicesQuery {
        key: key.clone(),
        members: members.iter().map(|text| member(text)).collect(),
        former: true,
        after: None,
        limit: 1_000,
    }
}

/// The wraps of a device.
#[must_use]
pub fn wraps_query(key: &StorageKey, by: &TestDevice) -> WrapsQuery {
    WrapsQuery {
        key: key.clone(),
        device: by.to_ref(),
        after: 0,
        limit: 1_000,
    }
}

/// The name of an object, of this number.
#[must_use]
pub fn object<D: Store>(db: &Arc<D>, number: u64) -> ObjectKey {
    let mut random = [0; 16];
    random[8..].copy_from_slice(&number.to_be_bytes());
    ObjectKey::new(db.instance(), random)
}

/// An upload of ten bytes that are to be kept.
#[must_use]
pub fn reserve(key: &StorageKey, by: &TestDevice, id: BlobId, object: ObjectKey) -> ReserveBlob {
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
