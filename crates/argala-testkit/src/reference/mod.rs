//! The store that the others are compared with: plain maps under one lock.
//!
//! It calls the same rules as every store and does nothing else that could go wrong, so that what
//! differs between it and an adapter is the adapter's reading and writing. It forgets everything
//! when it is dropped, and it is no place for data: it never is more than a test's yardstick.

mod blobs;
mod devices;
mod graphs;
mod records;
mod sweep;
mod upkeep;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use argala_core::{
    Outcome, StoreResult,
    ports::{
        ObjectKey, Store,
        store::{
            Abandoned, Blob, CommitBlob, Committed, DeviceMark, Erasure, ForgetBlob, Grant,
            Granted, Graph, GraphDevicesQuery, GraphListing, GraphsQuery, Pull, Pulled, Push,
            PushOutcome, Recount, Register, Registered, ReserveBlob, Reserved, Revoke, Revoked,
            Rotate, Rotated, Standing, WrapsPage, WrapsQuery,
        },
    },
};
use argala_wire::{
    BlobId, MemberId, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
};
use async_trait::async_trait;

use graphs::Shelf;

#[derive(Debug, Default)]
struct State {
    devices: BTreeMap<DeviceRef, Device>,
    seen: BTreeMap<DeviceRef, Timestamp>,
    graphs: BTreeMap<StorageKey, Shelf>,
    blobs: BTreeMap<ObjectKey, blobs::Row>,
    groups: BTreeMap<StorageKey, sweep::Watch>,
    erasures: Vec<Erasure>,
    erased: u64,
}

/// A [`Store`] in memory, obvious rather than fast.
#[derive(Debug, Default)]
pub struct ReferenceStore(Mutex<State>);

impl ReferenceStore {
    /// A store with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for ReferenceStore {
    fn instance(&self) -> &str {
        "4ef4"
    }

    async fn ping(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn device(&self, device: &DeviceRef) -> StoreResult<Option<Device>> {
        Ok(self.state().devices.get(device).cloned())
    }

    async fn register(&self, request: Register) -> Outcome<Registered> {
        Ok(self.state().register(&request)?)
    }

    async fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> StoreResult<Vec<Device>> {
        Ok(self.state().devices_of_member(member, after, limit))
    }

    async fn revoke(&self, request: Revoke) -> Outcome<Revoked> {
        Ok(self.state().revoke(&request)?)
    }

    async fn revoked_among(&self, devices: &[DeviceRef]) -> StoreResult<Vec<DeviceRef>> {
        Ok(self.state().revoked_among(devices))
    }

    async fn record_seen(&self, seen: &[(DeviceRef, Timestamp)]) -> StoreResult<()> {
        self.state().record_seen(seen);
        Ok(())
    }

    async fn graph(&self, key: &StorageKey) -> StoreResult<Option<Graph>> {
        let state = self.state();
        Ok(state.graphs.get(key).map(|shelf| shelf.graph.clone()))
    }

    async fn graphs_of(&self, query: &GraphsQuery) -> StoreResult<Vec<GraphListing>> {
        Ok(self.state().graphs_of(query))
    }

    async fn standing(
        &self,
        key: &StorageKey,
        members: &[MemberId],
    ) -> StoreResult<Option<Standing>> {
        Ok(self.state().standing(key, members))
    }

    async fn graph_devices(&self, query: &GraphDevicesQuery) -> StoreResult<Vec<Device>> {
        Ok(self.state().graph_devices(query))
    }

    async fn wraps(&self, query: &WrapsQuery) -> StoreResult<WrapsPage> {
        Ok(self.state().wraps(query))
    }

    async fn rotate(&self, request: Rotate) -> Outcome<Rotated> {
        Ok(self.state().rotate(&request)?)
    }

    async fn grant(&self, request: Grant) -> Outcome<Granted> {
        Ok(self.state().grant(&request)?)
    }

    async fn flag_directory(&self, key: &StorageKey, epoch: u64, owed: bool) -> StoreResult<()> {
        self.state().flag_directory(key, epoch, owed);
        Ok(())
    }

    async fn push(&self, request: Push) -> Outcome<PushOutcome> {
        Ok(self.state().push(&request)?)
    }

    async fn pull(&self, request: Pull) -> Outcome<Pulled> {
        Ok(self.state().pull(&request)?)
    }

    async fn reserve_blob(&self, request: ReserveBlob) -> Outcome<Reserved> {
        Ok(self.state().reserve_blob(request)?)
    }

    async fn commit_blob(&self, request: CommitBlob) -> Outcome<Committed> {
        Ok(self.state().commit_blob(&request))
    }

    async fn abandon_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<Abandoned> {
        Ok(self.state().abandon_blob(key, object))
    }

    async fn blob(
        &self,
        key: &StorageKey,
        blob: &BlobId,
        now: Timestamp,
    ) -> StoreResult<Option<Blob>> {
        let state = self.state();
        let blob = state.live_blob(key, blob);
        Ok(blob.filter(|blob| !blob.is_expired(now)))
    }

    async fn forget_blob(&self, request: ForgetBlob) -> Outcome<Option<Blob>> {
        Ok(self.state().forget_blob(&request)?)
    }

    async fn note_fetched(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) -> StoreResult<()> {
        self.state().note_fetched(key, object, device);
        Ok(())
    }

    async fn fetched_by(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
    ) -> StoreResult<Vec<DeviceRef>> {
        Ok(self.state().fetched_by(key, object))
    }

    async fn drop_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<bool> {
        Ok(self.state().drop_blob(key, object))
    }

    async fn recount(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        Ok(self.state().recount(key))
    }
}
