//! Ports with a test in between: to lose an answer, to fail a call, or to hold one up.

use std::{ops::Range, sync::Arc, time::Duration};

use argala_core::{
    Outcome, StoreResult,
    ports::{
        BlobStore, ByteStream, Directory, ForgetReason, ListedObject, ObjectKey, ObjectLink, Store,
        SweepStore, UpkeepStore,
        store::{
            Abandoned, Blob, CommitBlob, Committed, Delivery, DeviceMark, Doomed, Erased, Erasure,
            ForgetBlob, Grant, Granted, Graph, GraphDevicesQuery, GraphListing, GraphsQuery,
            GroupWatch, Pull, Pulled, Push, PushOutcome, Recount, Register, Registered,
            ReserveBlob, Reserved, Revoke, Revoked, Rotate, Rotated, Standing, WrapsPage,
            WrapsQuery,
        },
    },
};
use argala_wire::{
    BlobId, GroupId, MemberId, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
};
use async_trait::async_trait;

/// What a test does between a relay and its ports. An operation goes by the name of its method.
#[async_trait]
pub trait Interpose: Send + Sync + 'static {
    /// Before `operation` reaches the port.
    ///
    /// # Errors
    /// Are answered in the port's stead, which then hears nothing of it.
    async fn before(&self, operation: &'static str) -> StoreResult<()> {
        let _ = operation;
        Ok(())
    }

    /// An upload has become live: before [`after`](Self::after).
    fn lived(&self, object: &ObjectKey) {
        let _ = object;
    }

    /// The row of a blob was removed by this call: before [`after`](Self::after).
    fn dropped(&self, object: &ObjectKey) {
        let _ = object;
    }

    /// After the port has carried `operation` out, whatever it answered.
    ///
    /// # Errors
    /// Are answered in place of what the port said: its answer was lost on the way.
    async fn after(&self, operation: &'static str) -> StoreResult<()> {
        let _ = operation;
        Ok(())
    }
}

macro_rules! between {
    ($self:ident, $operation:literal, $call:expr) => {{
        $self.between.before($operation).await?;
        let told = $call.await;
        $self.between.after($operation).await?;
        told
    }};
}

/// A port with a test in between.
pub struct Interposed<P: ?Sized> {
    inner: Arc<P>,
    between: Arc<dyn Interpose>,
}

impl<P: ?Sized> Interposed<P> {
    /// Puts `between` before `inner`.
    #[must_use]
    pub fn new(inner: Arc<P>, between: Arc<dyn Interpose>) -> Arc<Self> {
        Arc::new(Self { inner, between })
    }
}

#[async_trait]
impl Store for Interposed<dyn SweepStore> {
    fn instance(&self) -> &str {
        self.inner.instance()
    }

    async fn ping(&self) -> StoreResult<()> {
        between!(self, "ping", self.inner.ping())
    }

    async fn device(&self, device: &DeviceRef) -> StoreResult<Option<Device>> {
        between!(self, "device", self.inner.device(device))
    }

    async fn register(&self, request: Register) -> Outcome<Registered> {
        between!(self, "register", self.inner.register(request))
    }

    async fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> StoreResult<Vec<Device>> {
        between!(
            self,
            "devices_of_member",
            self.inner.devices_of_member(member, after, limit)
        )
    }

    async fn revoke(&self, request: Revoke) -> Outcome<Revoked> {
        between!(self, "revoke", self.inner.revoke(request))
    }

    async fn revoked_among(&self, devices: &[DeviceRef]) -> StoreResult<Vec<DeviceRef>> {
        between!(self, "revoked_among", self.inner.revoked_among(devices))
    }

    async fn record_seen(&self, seen: &[(DeviceRef, Timestamp)]) -> StoreResult<()> {
        between!(self, "record_seen", self.inner.record_seen(seen))
    }

    async fn graph(&self, key: &StorageKey) -> StoreResult<Option<Graph>> {
        between!(self, "graph", self.inner.graph(key))
    }

    async fn graphs_of(&self, query: &GraphsQuery) -> StoreResult<Vec<GraphListing>> {
        between!(self, "graphs_of", self.inner.graphs_of(query))
    }

    async fn standing(
        &self,
        key: &StorageKey,
        members: &[MemberId],
    ) -> StoreResult<Option<Standing>> {
        between!(self, "standing", self.inner.standing(key, members))
    }

    async fn graph_devices(&self, query: &GraphDevicesQuery) -> StoreResult<Vec<Device>> {
        between!(self, "graph_devices", self.inner.graph_devices(query))
    }

    async fn wraps(&self, query: &WrapsQuery) -> StoreResult<WrapsPage> {
        between!(self, "wraps", self.inner.wraps(query))
    }

    async fn rotate(&self, request: Rotate) -> Outcome<Rotated> {
        between!(self, "rotate", self.inner.rotate(request))
    }

    async fn grant(&self, request: Grant) -> Outcome<Granted> {
        between!(self, "grant", self.inner.grant(request))
    }

    async fn flag_directory(&self, key: &StorageKey, epoch: u64, owed: bool) -> StoreResult<()> {
        between!(
            self,
            "flag_directory",
            self.inner.flag_directory(key, epoch, owed)
        )
    }

    async fn push(&self, request: Push) -> Outcome<PushOutcome> {
        between!(self, "push", self.inner.push(request))
    }

    async fn pull(&self, request: Pull) -> Outcome<Pulled> {
        between!(self, "pull", self.inner.pull(request))
    }

    async fn reserve_blob(&self, request: ReserveBlob) -> Outcome<Reserved> {
        between!(self, "reserve_blob", self.inner.reserve_blob(request))
    }

    async fn commit_blob(&self, request: CommitBlob) -> Outcome<Committed> {
        let object = request.object.clone();
        let commit = async {
            let told = self.inner.commit_blob(request).await;
            if matches!(told, Ok(Committed::Live(_))) {
                self.between.lived(&object);
            }
            told
        };
        between!(self, "commit_blob", commit)
    }

    async fn abandon_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<Abandoned> {
        between!(self, "abandon_blob", self.inner.abandon_blob(key, object))
    }

    async fn blob(
        &self,
        key: &StorageKey,
        blob: &BlobId,
        now: Timestamp,
    ) -> StoreResult<Option<Blob>> {
        between!(self, "blob", self.inner.blob(key, blob, now))
    }

    async fn forget_blob(&self, request: ForgetBlob) -> Outcome<Option<Blob>> {
        between!(self, "forget_blob", self.inner.forget_blob(request))
    }

    async fn note_fetched(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) -> StoreResult<()> {
        between!(
            self,
            "note_fetched",
            self.inner.note_fetched(key, object, device)
        )
    }

    async fn fetched_by(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
    ) -> StoreResult<Vec<DeviceRef>> {
        between!(self, "fetched_by", self.inner.fetched_by(key, object))
    }

    async fn drop_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<bool> {
        let drop = async {
            let told = self.inner.drop_blob(key, object).await;
            if matches!(told, Ok(true)) {
                self.between.dropped(object);
            }
            told
        };
        between!(self, "drop_blob", drop)
    }

    async fn recount(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        between!(self, "recount", self.inner.recount(key))
    }
}

#[async_trait]
impl UpkeepStore for Interposed<dyn SweepStore> {
    async fn graph_keys(
        &self,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        between!(self, "graph_keys", self.inner.graph_keys(after, limit))
    }

    async fn mend(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        between!(self, "mend", self.inner.mend(key))
    }

    async fn renew(&self, renewed: &[(StorageKey, u64)], epochs: u64) -> StoreResult<u64> {
        between!(self, "renew", self.inner.renew(renewed, epochs))
    }

    async fn begin_erasure(
        &self,
        key: &StorageKey,
        reason: ForgetReason,
        now: Timestamp,
    ) -> StoreResult<bool> {
        between!(
            self,
            "begin_erasure",
            self.inner.begin_erasure(key, reason, now)
        )
    }

    async fn erasures(&self, limit: usize) -> StoreResult<Vec<Erasure>> {
        between!(self, "erasures", self.inner.erasures(limit))
    }

    async fn erase_some(
        &self,
        erasure: &Erasure,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased> {
        between!(
            self,
            "erase_some",
            self.inner.erase_some(erasure, now, limit)
        )
    }

    async fn graphs_with(
        &self,
        member: &MemberId,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        between!(
            self,
            "graphs_with",
            self.inner.graphs_with(member, after, limit)
        )
    }

    async fn erase_from(
        &self,
        key: &StorageKey,
        member: &MemberId,
        incarnation: u64,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased> {
        between!(
            self,
            "erase_from",
            self.inner.erase_from(key, member, incarnation, now, limit)
        )
    }

    async fn put_off(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        now: Timestamp,
    ) -> StoreResult<()> {
        between!(self, "put_off", self.inner.put_off(key, object, now))
    }

    async fn erase_member(&self, member: &MemberId) -> StoreResult<(u64, Vec<StorageKey>)> {
        between!(self, "erase_member", self.inner.erase_member(member))
    }
}

#[async_trait]
impl SweepStore for Interposed<dyn SweepStore> {
    async fn doom_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        between!(
            self,
            "doom_blobs",
            self.inner
                .doom_blobs(now, pending_before, forgetting_before, limit)
        )
    }

    async fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        between!(
            self,
            "peek_blobs",
            self.inner
                .peek_blobs(now, pending_before, forgetting_before, limit)
        )
    }

    async fn deliveries(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<Delivery>> {
        between!(self, "deliveries", self.inner.deliveries(now, again, limit))
    }

    async fn doom_delivered(
        &self,
        delivered: &[(StorageKey, ObjectKey)],
        now: Timestamp,
    ) -> StoreResult<Vec<Doomed>> {
        between!(
            self,
            "doom_delivered",
            self.inner.doom_delivered(delivered, now)
        )
    }

    async fn drop_tombstones(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        between!(
            self,
            "drop_tombstones",
            self.inner.drop_tombstones(before, limit)
        )
    }

    async fn peek_tombstones(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<(StorageKey, u64)>> {
        between!(
            self,
            "peek_tombstones",
            self.inner.peek_tombstones(before, limit)
        )
    }

    async fn drop_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        between!(
            self,
            "drop_idempotency",
            self.inner.drop_idempotency(before, limit)
        )
    }

    async fn peek_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        between!(
            self,
            "peek_idempotency",
            self.inner.peek_idempotency(before, limit)
        )
    }

    async fn groups_to_ask(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<GroupWatch>> {
        between!(
            self,
            "groups_to_ask",
            self.inner.groups_to_ask(now, again, limit)
        )
    }

    async fn note_groups(&self, noted: &[GroupWatch]) -> StoreResult<()> {
        between!(self, "note_groups", self.inner.note_groups(noted))
    }

    async fn unknown_objects(&self, objects: &[ObjectKey]) -> StoreResult<Vec<ObjectKey>> {
        between!(self, "unknown_objects", self.inner.unknown_objects(objects))
    }
}

#[async_trait]
impl BlobStore for Interposed<dyn BlobStore> {
    async fn put(&self, key: &ObjectKey, size: u64, body: ByteStream) -> StoreResult<()> {
        between!(self, "put", self.inner.put(key, size, body))
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        between!(self, "get", self.inner.get(key, range))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        between!(self, "delete", self.inner.delete(key))
    }

    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        between!(self, "list", self.inner.list(instance, after, limit))
    }

    async fn link(&self, key: &ObjectKey, lifetime: Duration) -> StoreResult<ObjectLink> {
        between!(self, "link", self.inner.link(key, lifetime))
    }
}

#[async_trait]
impl Directory for Interposed<dyn Directory> {
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>> {
        between!(self, "members_of_group", self.inner.members_of_group(group))
    }

    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        between!(
            self,
            "is_group_member",
            self.inner.is_group_member(group, member)
        )
    }

    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        between!(
            self,
            "is_active_member",
            self.inner.is_active_member(member)
        )
    }

    async fn groups_of_member(&self, member: &MemberId) -> StoreResult<Option<Vec<GroupId>>> {
        between!(
            self,
            "groups_of_member",
            self.inner.groups_of_member(member)
        )
    }

    async fn active_members(&self, members: &[MemberId]) -> StoreResult<Vec<MemberId>> {
        between!(self, "active_members", self.inner.active_members(members))
    }
}
