//! The port: each operation as a read, or as work in a transaction.

use argala_core::{
    Outcome, StoreResult,
    ports::{
        ObjectKey, Store,
        store::{
            Abandoned, Blob, CommitBlob, Committed, DeviceMark, ForgetBlob, Grant, Granted, Graph,
            GraphDevicesQuery, GraphListing, GraphsQuery, Pull, Pulled, Push, PushOutcome, Recount,
            Register, Registered, ReserveBlob, Reserved, Revoke, Revoked, Rotate, Rotated,
            Standing, WrapsPage, WrapsQuery,
        },
    },
};
use argala_wire::{
    BlobId, MemberId, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
};
use async_trait::async_trait;

use crate::{Postgres, blobs, columns::first, devices, graphs, keys, pull, session::Sql, upkeep};

const PING: Sql = Sql {
    text: "SELECT 1 FROM relay_schema",
    types: &[],
};

#[async_trait]
impl Store for Postgres {
    fn instance(&self) -> &str {
        &self.instance
    }

    async fn ping(&self) -> StoreResult<()> {
        self.database
            .find("reach the database", &PING, &[], |_| Ok(()))
            .await
    }

    async fn device(&self, device: &DeviceRef) -> StoreResult<Option<Device>> {
        self.looks.device(device).await
    }

    async fn register(&self, request: Register) -> Outcome<Registered> {
        self.database
            .write("register", &request, |tx, request| {
                Box::pin(devices::register(tx, request))
            })
            .await
    }

    async fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> StoreResult<Vec<Device>> {
        devices::of_member(&self.database, member, after, limit).await
    }

    async fn revoke(&self, request: Revoke) -> Outcome<Revoked> {
        self.database
            .write("revoke", &request, |tx, request| {
                Box::pin(devices::revoke(tx, request))
            })
            .await
    }

    async fn revoked_among(&self, devices: &[DeviceRef]) -> StoreResult<Vec<DeviceRef>> {
        devices::revoked_among(&self.database, devices).await
    }

    async fn record_seen(&self, seen: &[(DeviceRef, Timestamp)]) -> StoreResult<()> {
        self.database
            .update("note when devices were seen", seen, |tx, seen| {
                Box::pin(devices::record_seen(tx, seen))
            })
            .await
    }

    async fn graph(&self, key: &StorageKey) -> StoreResult<Option<Graph>> {
        self.database
            .find("find a graph", &graphs::FIND, &[&key.as_str()], |rows| {
                first(rows, |row| Ok(graphs::from_row(row)?.graph))
            })
            .await
    }

    async fn graphs_of(&self, query: &GraphsQuery) -> StoreResult<Vec<GraphListing>> {
        graphs::of_member(&self.database, query).await
    }

    async fn standing(
        &self,
        key: &StorageKey,
        members: &[MemberId],
    ) -> StoreResult<Option<Standing>> {
        graphs::standing(&self.database, key, members).await
    }

    async fn graph_devices(&self, query: &GraphDevicesQuery) -> StoreResult<Vec<Device>> {
        graphs::devices_of(&self.database, query).await
    }

    async fn wraps(&self, query: &WrapsQuery) -> StoreResult<WrapsPage> {
        keys::wraps(&self.database, query).await
    }

    async fn rotate(&self, request: Rotate) -> Outcome<Rotated> {
        self.database
            .write("rotate", &request, |tx, request| {
                Box::pin(keys::rotate(tx, request))
            })
            .await
    }

    async fn grant(&self, request: Grant) -> Outcome<Granted> {
        self.database
            .write("grant", &request, |tx, request| {
                Box::pin(keys::grant(tx, request))
            })
            .await
    }

    async fn flag_directory(&self, key: &StorageKey, epoch: u64, owed: bool) -> StoreResult<()> {
        graphs::flag_directory(&self.database, key, epoch, owed).await
    }

    async fn push(&self, request: Push) -> Outcome<PushOutcome> {
        self.pushes.push(request).await
    }

    async fn pull(&self, request: Pull) -> Outcome<Pulled> {
        pull::pull(&self.database, &request).await
    }

    async fn reserve_blob(&self, mut request: ReserveBlob) -> Outcome<Reserved> {
        // A row cannot count beyond this, whatever the ceiling that is configured.
        request.max_bytes_per_graph = request.max_bytes_per_graph.min(i64::MAX as u64);
        self.database
            .write("reserve a blob", &request, |tx, request| {
                Box::pin(blobs::reserve(tx, request))
            })
            .await
    }

    async fn commit_blob(&self, request: CommitBlob) -> Outcome<Committed> {
        self.database
            .write("commit a blob", &request, |tx, request| {
                Box::pin(blobs::commit(tx, request))
            })
            .await
    }

    async fn abandon_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<Abandoned> {
        self.database
            .update("abandon a blob", &(key, object), |tx, request| {
                Box::pin(blobs::abandon(tx, request))
            })
            .await
    }

    async fn blob(
        &self,
        key: &StorageKey,
        blob: &BlobId,
        now: Timestamp,
    ) -> StoreResult<Option<Blob>> {
        blobs::find(&self.database, key, blob, now).await
    }

    async fn forget_blob(&self, request: ForgetBlob) -> Outcome<Option<Blob>> {
        self.database
            .write("forget a blob", &request, |tx, request| {
                Box::pin(blobs::forget(tx, request))
            })
            .await
    }

    async fn note_fetched(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) -> StoreResult<()> {
        blobs::note_fetched(&self.database, key, object, device).await
    }

    async fn fetched_by(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
    ) -> StoreResult<Vec<DeviceRef>> {
        blobs::fetched_by(&self.database, key, object).await
    }

    async fn drop_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<bool> {
        self.database
            .update("remove a blob's row", &(key, object), |tx, request| {
                Box::pin(blobs::remove(tx, request))
            })
            .await
    }

    async fn recount(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        upkeep::recount(&self.database, key).await
    }
}
