//! The store: devices, graphs, keys, records, and the rows of blobs.

mod blobs;
mod devices;
mod graphs;
mod records;
mod sweep;
mod upkeep;

pub use blobs::{
    Abandoned, Blob, CommitBlob, Committed, Doomed, ForgetBlob, ReserveBlob, Reserved,
};
pub use devices::{DeviceMark, GraphDevicesQuery, Register, Registered, Revoke, Revoked};
pub use graphs::{
    Epoch, Grant, Granted, Graph, GraphListing, GraphsQuery, Holder, Rotate, Rotated, Standing,
    WrapsPage, WrapsQuery,
};
pub use records::{
    Idempotency, Pull, PullPage, Pulled, Push, PushOutcome, PushedRecord, SignatureVerdict,
};
pub use sweep::{Delivery, Emptiness, GroupWatch, SweepStore};
pub use upkeep::{Erased, Erasure, UpkeepStore};

use argala_wire::{
    BlobId, MemberId, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
};
use async_trait::async_trait;

use crate::{Outcome, StoreResult, ports::ObjectKey};

/// Keeps everything but the bytes of blobs. One method is one atomic operation of the protocol.
///
/// Each method that changes something locks what its decision rests on, reads it by a later
/// statement, calls the function of [`crate::rules`] that its request names, writes what that
/// decides, and commits: durably, before it returns. No transaction handle leaves an adapter, and
/// no rule is spelled in SQL. Locks are taken in one order everywhere: device rows (sorted), then
/// graph rows (sorted by storage key, byte order), then the rest.
///
/// A future that is dropped leaves the change whole or absent.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The random id of this database, lower-case hex; object keys begin with it.
    fn instance(&self) -> &str;

    /// Reaches the database, for readiness.
    async fn ping(&self) -> StoreResult<()>;

    // Devices.

    /// One device, revoked or not, without `last_seen_at`.
    async fn device(&self, device: &DeviceRef) -> StoreResult<Option<Device>>;

    /// Registers a device; decides by [`crate::rules::register`]. Locks the member's device rows,
    /// so that two devices cannot both take the last place.
    async fn register(&self, request: Register) -> Outcome<Registered>;

    /// The member's devices after `after`, revoked ones too, oldest first (`registered_at`, then
    /// device id), with `last_seen_at`; at most `limit`.
    async fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> StoreResult<Vec<Device>>;

    /// Revokes a device: stamps it, flags every graph of whose current epoch it holds a wrap, and
    /// blanks all its wraps. Decides by [`crate::rules::revoke`].
    async fn revoke(&self, request: Revoke) -> Outcome<Revoked>;

    /// Those of `devices` that are revoked. One statement for all.
    async fn revoked_among(&self, devices: &[DeviceRef]) -> StoreResult<Vec<DeviceRef>>;

    /// Notes when devices were last seen, later times only, of those that are there: a sighting may
    /// come after its device was erased. May be lost in a crash.
    async fn record_seen(&self, seen: &[(DeviceRef, Timestamp)]) -> StoreResult<()>;

    // Graphs and their keys.

    /// One graph; `None` until its first rotate.
    async fn graph(&self, key: &StorageKey) -> StoreResult<Option<Graph>>;

    /// A member's graphs, by storage key (byte order); at most `query.limit`.
    async fn graphs_of(&self, query: &GraphsQuery) -> StoreResult<Vec<GraphListing>>;

    /// A graph, the holders of its current epoch and the active devices of `members`, all of one
    /// moment. `None` until the graph's first rotate.
    async fn standing(
        &self,
        key: &StorageKey,
        members: &[MemberId],
    ) -> StoreResult<Option<Standing>>;

    /// The devices of a graph, by member id and device id (byte order); at most `query.limit`.
    async fn graph_devices(&self, query: &GraphDevicesQuery) -> StoreResult<Vec<Device>>;

    /// One device's wraps, blanked ones left out, epochs ascending; at most `query.limit`.
    async fn wraps(&self, query: &WrapsQuery) -> StoreResult<WrapsPage>;

    /// Begins an epoch; decides by [`crate::rules::rotate()`]. Locks the caller's and the members'
    /// device rows for share, then the graph (which it creates before it locks it).
    async fn rotate(&self, request: Rotate) -> Outcome<Rotated>;

    /// Gives wraps to devices; decides by [`crate::rules::grant`]. Locks as `rotate` does.
    async fn grant(&self, request: Grant) -> Outcome<Granted>;

    /// Stores whether the directory has put a holder of `epoch` off the roster; changes nothing
    /// where the graph's epoch is another by now.
    async fn flag_directory(&self, key: &StorageKey, epoch: u64, owed: bool) -> StoreResult<()>;

    // Records.

    /// Takes records; decides by [`crate::rules::push()`] under the graph's lock. Pushes that wait
    /// together may share a transaction; what one is told never depends on its neighbours.
    async fn push(&self, request: Push) -> Outcome<PushOutcome>;

    /// One page of records, of one moment; what to read is planned by [`crate::rules::pull`].
    async fn pull(&self, request: Pull) -> Outcome<Pulled>;

    // The rows of blobs. Each statement names the graph, by which their table may be divided.

    /// Charges an upload's bytes and adds its row, `pending`; decides by
    /// [`crate::rules::blob::reserve`].
    async fn reserve_blob(&self, request: ReserveBlob) -> Outcome<Reserved>;

    /// Makes a pending blob live, or lets it go where another with its id became live first;
    /// decides by [`crate::rules::blob::commit`]. One that this very object has made live already
    /// is [`Committed::Live`] again: whoever lost the answer may ask twice.
    async fn commit_blob(&self, request: CommitBlob) -> Outcome<Committed>;

    /// Gives a pending upload's bytes back and marks its row `forgetting`; does nothing where it
    /// is not pending, and tells in either case what its object is now.
    async fn abandon_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<Abandoned>;

    /// A live blob that has not expired by `now`.
    async fn blob(
        &self,
        key: &StorageKey,
        blob: &BlobId,
        now: Timestamp,
    ) -> StoreResult<Option<Blob>>;

    /// Marks a live blob `forgetting` and gives its bytes back; `None` where there is none, or one
    /// that has expired by then. The caller's device is locked for share and must be active.
    async fn forget_blob(&self, request: ForgetBlob) -> Outcome<Option<Blob>>;

    /// Notes that `device` has fetched a `deliver` blob whole.
    async fn note_fetched(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) -> StoreResult<()>;

    /// Who has fetched a `deliver` blob whole, sorted.
    async fn fetched_by(&self, key: &StorageKey, object: &ObjectKey)
    -> StoreResult<Vec<DeviceRef>>;

    /// Removes the row of a `forgetting` blob, once its object is gone. Whether there was one: of
    /// two that remove it, one is told `true`.
    async fn drop_blob(&self, key: &StorageKey, object: &ObjectKey) -> StoreResult<bool>;

    /// Compares a graph's counters with the sums over its rows; see [`Recount`]. `None` where
    /// there is no such graph.
    async fn recount(&self, key: &StorageKey) -> StoreResult<Option<Recount>>;
}

/// A graph's counters beside the sums they stand for, of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recount {
    /// What the graph's row says.
    pub stored: Counters,
    /// What its records and blobs add up to.
    pub counted: Counters,
}

/// What a graph's row counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Live records.
    pub records: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of ciphertext, tombstones' included.
    pub ciphertext_bytes: u64,
    /// Bytes of live and pending blobs.
    pub blob_bytes: u64,
}
