//! The port: each operation handed to the writer or to a reader.

use std::collections::BTreeSet;

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

use crate::{Sqlite, blobs, devices, failure::unrefused, graphs, keys, pull, push, upkeep};

#[async_trait]
impl Store for Sqlite {
    fn instance(&self) -> &str {
        &self.instance
    }

    async fn ping(&self) -> StoreResult<()> {
        let work = |connection: &rusqlite::Connection| {
            connection
                .prepare_cached("SELECT 1 FROM meta")?
                .query_row([], |_| Ok(()))?;
            Ok(())
        };
        unrefused(self.read("reach the database", work).await)
    }

    async fn device(&self, device: &DeviceRef) -> StoreResult<Option<Device>> {
        let device = device.clone();
        let find = self.read("find a device", move |connection| {
            Ok(devices::caller(connection, &device)?)
        });
        unrefused(find.await)
    }

    async fn register(&self, request: Register) -> Outcome<Registered> {
        self.write("register", move |tx| devices::register(tx, &request))
            .await
    }

    async fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> StoreResult<Vec<Device>> {
        let (member, after) = (member.clone(), after.cloned());
        let list = self.read("list a member's devices", move |connection| {
            devices::of_member(connection, &member, after.as_ref(), limit)
        });
        unrefused(list.await)
    }

    async fn revoke(&self, request: Revoke) -> Outcome<Revoked> {
        self.write("revoke", move |tx| devices::revoke(tx, &request))
            .await
    }

    async fn revoked_among(&self, devices: &[DeviceRef]) -> StoreResult<Vec<DeviceRef>> {
        let asked: BTreeSet<_> = devices.iter().cloned().collect();
        let list = self.read("find revoked devices", move |connection| {
            devices::revoked_among(connection, &asked)
        });
        unrefused(list.await)
    }

    async fn record_seen(&self, seen: &[(DeviceRef, Timestamp)]) -> StoreResult<()> {
        let seen = seen.to_vec();
        let note = self.write("note when devices were seen", move |tx| {
            devices::record_seen(tx, &seen)
        });
        unrefused(note.await)
    }

    async fn graph(&self, key: &StorageKey) -> StoreResult<Option<Graph>> {
        let key = key.clone();
        let find = self.read("find a graph", move |connection| {
            Ok(graphs::find(connection, &key)?.map(|row| row.graph))
        });
        unrefused(find.await)
    }

    async fn graphs_of(&self, query: &GraphsQuery) -> StoreResult<Vec<GraphListing>> {
        let query = query.clone();
        let list = self.read("list a member's graphs", move |connection| {
            graphs::of_member(connection, &query)
        });
        unrefused(list.await)
    }

    async fn standing(
        &self,
        key: &StorageKey,
        members: &[MemberId],
    ) -> StoreResult<Option<Standing>> {
        let (key, members) = (key.clone(), members.to_vec());
        let find = self.read("tell a graph's standing", move |connection| {
            graphs::standing(connection, &key, &members)
        });
        unrefused(find.await)
    }

    async fn graph_devices(&self, query: &GraphDevicesQuery) -> StoreResult<Vec<Device>> {
        let query = query.clone();
        let list = self.read("list a graph's devices", move |connection| {
            graphs::devices_of(connection, &query)
        });
        unrefused(list.await)
    }

    async fn wraps(&self, query: &WrapsQuery) -> StoreResult<WrapsPage> {
        let query = query.clone();
        let list = self.read("list a device's wraps", move |connection| {
            keys::wraps(connection, &query)
        });
        unrefused(list.await)
    }

    async fn rotate(&self, request: Rotate) -> Outcome<Rotated> {
        let bytes = request.wraps.iter().map(|wrap| wrap.wrap.len()).sum();
        let work = move |tx: &_| keys::rotate(tx, &request);
        self.writer.run("rotate", bytes, work).await
    }

    async fn grant(&self, request: Grant) -> Outcome<Granted> {
        let bytes = request.wraps.iter().map(|wrap| wrap.wrap.len()).sum();
        let work = move |tx: &_| keys::grant(tx, &request);
        self.writer.run("grant", bytes, work).await
    }

    async fn flag_directory(&self, key: &StorageKey, epoch: u64, owed: bool) -> StoreResult<()> {
        let key = key.clone();
        let flag = self.write("note what the directory owes", move |tx| {
            graphs::flag_directory(tx, &key, epoch, owed)
        });
        unrefused(flag.await)
    }

    async fn push(&self, request: Push) -> Outcome<PushOutcome> {
        let lengths = request.records.iter().map(|it| it.record.ciphertext.len());
        let bytes = lengths.sum();
        let work = move |tx: &_| push::push(tx, &request);
        self.writer.run("push", bytes, work).await
    }

    async fn pull(&self, request: Pull) -> Outcome<Pulled> {
        self.read("pull", move |connection| pull::pull(connection, &request))
            .await
    }

    async fn reserve_blob(&self, mut request: ReserveBlob) -> Outcome<Reserved> {
        // A row cannot count beyond this, whatever the ceiling that is configured.
        request.max_bytes_per_graph = request.max_bytes_per_graph.min(i64::MAX as u64);
        self.write("reserve a blob", move |tx| blobs::reserve(tx, &request))
            .await
    }

    async fn commit_blob(&self, request: CommitBlob) -> Outcome<Committed> {
        self.write("commit a blob", move |tx| blobs::commit(tx, &request))
            .await
    }

    async fn abandon_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<Abandoned> {
        let (key, object) = (key.clone(), object.clone());
        let abandon = self.write("abandon a blob", move |tx| {
            blobs::abandon(tx, &key, &object)
        });
        unrefused(abandon.await)
    }

    async fn blob(
        &self,
        key: &StorageKey,
        blob: &BlobId,
        now: Timestamp,
    ) -> StoreResult<Option<Blob>> {
        let (key, blob) = (key.clone(), blob.clone());
        let find = self.read("find a blob", move |connection| {
            Ok(blobs::find(connection, &key, &blob, now)?)
        });
        unrefused(find.await)
    }

    async fn forget_blob(&self, request: ForgetBlob) -> Outcome<Option<Blob>> {
        self.write("forget a blob", move |tx| blobs::forget(tx, &request))
            .await
    }

    async fn note_fetched(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) -> StoreResult<()> {
        let (key, object, device) = (key.clone(), object.clone(), device.clone());
        let note = self.write("note a fetched blob", move |tx| {
            blobs::note_fetched(tx, &key, &object, &device)
        });
        unrefused(note.await)
    }

    async fn fetched_by(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
    ) -> StoreResult<Vec<DeviceRef>> {
        let (key, object) = (key.clone(), object.clone());
        let find = self.read("find who fetched a blob", move |connection| {
            Ok(blobs::fetched_by(connection, &key, &object)?)
        });
        unrefused(find.await)
    }

    async fn drop_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<bool> {
        let (key, object) = (key.clone(), object.clone());
        let remove = self.write("remove a blob's row", move |tx| {
            blobs::remove(tx, &key, &object)
        });
        unrefused(remove.await)
    }

    async fn recount(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        let key = key.clone();
        let count = self.read("recount a graph", move |connection| {
            upkeep::recount(connection, &key)
        });
        unrefused(count.await)
    }
}
