//! What a sweep asks of a store: what is due, and to forget it.

use argala_wire::{GroupId, StorageKey, Timestamp, devices::DeviceRef};
use async_trait::async_trait;

use super::{Doomed, UpkeepStore};
use crate::{StoreResult, ports::ObjectKey};

/// Finds what is due and forgets it. Beside [`Store`](super::Store), because a replica that serves
/// requests must not have it: on one machine the one process does, in a cluster one process beside
/// the replicas.
///
/// Each method takes a few rows at a time, those that have been due for longest, passes over what
/// somebody else has locked, and is one transaction: a caller who dies between two calls has left
/// nothing half done, and whoever calls next finds what is left. What is looked for is found by an
/// index, so that a call costs what is due and not what is stored.
#[async_trait]
pub trait SweepStore: UpkeepStore {
    /// Marks at most `limit` blobs `forgetting` that are due at `now` (live and expired; pending
    /// since before `pending_before`), giving their bytes back, and returns at most `limit`
    /// `forgetting` ones, whoever marked them, whose marking lies before `forgetting_before` or
    /// was done by this call.
    async fn doom_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>>;

    /// What [`doom_blobs`](Self::doom_blobs) would mark or return; nothing is changed.
    async fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>>;

    /// At most `limit` live `deliver` blobs that some device has fetched and whose turn to be
    /// looked at is not after `now`. Their next turn is at `again`, unless another device fetches
    /// them before; where there is no `again`, nothing is changed.
    ///
    /// Who has fetched them is read after their turn has been set: a fetch that comes later gives
    /// them another.
    async fn deliveries(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<Delivery>>;

    /// Marks those of `delivered` `forgetting` that are live `deliver` blobs still, giving their
    /// bytes back, and returns those it marked.
    async fn doom_delivered(
        &self,
        delivered: &[(StorageKey, ObjectKey)],
        now: Timestamp,
    ) -> StoreResult<Vec<Doomed>>;

    /// Removes at most `limit` tombstones pushed before `before`, raising the floor of their
    /// graphs to the greatest seq among them; how many there were.
    async fn drop_tombstones(&self, before: Timestamp, limit: usize) -> StoreResult<u64>;

    /// How many tombstones were pushed before `before`, at most `limit` of them, by graph.
    async fn peek_tombstones(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<(StorageKey, u64)>>;

    /// Removes at most `limit` idempotency keys stored before `before`; how many there were. More
    /// at once, where they go in one step.
    async fn drop_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64>;

    /// How many idempotency keys were stored before `before`, at most `limit`.
    async fn peek_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64>;

    /// At most `limit` groups' graphs whose turn to be asked about is not after `now`. Their next
    /// turn is at `again`; where there is none, nothing is changed.
    async fn groups_to_ask(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<GroupWatch>>;

    /// Notes since when groups have been empty, or that they are not.
    async fn note_groups(&self, noted: &[GroupWatch]) -> StoreResult<()>;

    /// Those of `objects` that no row of a blob names, sorted.
    async fn unknown_objects(&self, objects: &[ObjectKey]) -> StoreResult<Vec<ObjectKey>>;
}

/// A live `deliver` blob, and who has fetched it whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The graph it belongs to.
    pub graph: StorageKey,
    /// Where its bytes lie.
    pub object: ObjectKey,
    /// Who uploaded it.
    pub by: DeviceRef,
    /// Who has fetched it, sorted.
    pub fetched: Vec<DeviceRef>,
}

/// A group's graph, and since when the group is known to have no members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupWatch {
    /// The graph.
    pub graph: StorageKey,
    /// The group.
    pub group: GroupId,
    /// `None` where it had members when it was last asked about, or never was.
    pub empty: Option<Emptiness>,
}

/// A time in which a group was found empty whenever the directory was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emptiness {
    /// When it was first found so.
    pub since: Timestamp,
    /// When it was last found so.
    pub until: Timestamp,
}
