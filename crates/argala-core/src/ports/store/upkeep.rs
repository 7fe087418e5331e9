//! What an operator and a sweep do to whole graphs and members.

use argala_wire::{MemberId, StorageKey, Timestamp};
use async_trait::async_trait;

use super::{Doomed, Recount, Store};
use crate::{
    StoreResult,
    ports::{ForgetReason, ObjectKey},
};

/// Does what no request asks for: erases graphs and members, mends counters, and makes a restored
/// database fit to serve.
///
/// An erasure has stages. Its first is one transaction after which the graph is not there any more
/// for anybody: whoever asks finds none, and may begin another under its key. What it held goes
/// then, a few rows at a time, by whoever calls: what an erasure that was cut off has left is found
/// by [`erasures`](Self::erasures).
#[async_trait]
pub trait UpkeepStore: Store {
    /// The storage keys of graphs after `after` (byte order); at most `limit`.
    async fn graph_keys(
        &self,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>>;

    /// Makes a graph's counters what its rows add up to, under its lock; what they were and are.
    /// `None` where there is no such graph.
    async fn mend(&self, key: &StorageKey) -> StoreResult<Option<Recount>>;

    /// Gives each of these graphs its new incarnation and, where it has a key, raises its epoch by
    /// `epochs` and notes that it owes a rotation. How many graphs there were.
    async fn renew(&self, renewed: &[(StorageKey, u64)], epochs: u64) -> StoreResult<u64>;

    /// Begins to erase a graph: from then on it is not there. Whether it was.
    async fn begin_erasure(
        &self,
        key: &StorageKey,
        reason: ForgetReason,
        now: Timestamp,
    ) -> StoreResult<bool>;

    /// Erasures that have not ended, the oldest first; at most `limit`.
    async fn erasures(&self, limit: usize) -> StoreResult<Vec<Erasure>>;

    /// Goes on with an erasure: removes at most `limit` rows, and marks blobs `forgetting`, whose
    /// objects are the caller's to remove, then their rows.
    async fn erase_some(
        &self,
        erasure: &Erasure,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased>;

    /// The graphs that are a member's own or a pair's of theirs, those of which a device of theirs
    /// ever held a wrap, and those of which one put a blob of which there still is a row or fetched a
    /// `deliver` blob, after `after` (byte order); at most `limit`.
    async fn graphs_with(
        &self,
        member: &MemberId,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>>;

    /// Removes what a member left in a graph that others share: their records, blobs, wraps and
    /// idempotency keys, at most `limit` rows of each kind at a time. Where records went, the graph
    /// gets `incarnation`, so that every device starts over and drops them. Blobs of theirs that were
    /// marked before `now` and are still there come again: to be told `now` anew for each step would
    /// have those whose objects cannot be removed come for ever.
    ///
    /// Wraps of the current epoch stay, blanked: by them the others are told to rotate. Until the
    /// last step [`graphs_with`](Self::graphs_with) has the graph, so that what was cut off is found.
    async fn erase_from(
        &self,
        key: &StorageKey,
        member: &MemberId,
        incarnation: u64,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased>;

    /// Puts off the removal of an object that could not be removed at `now`: others come first.
    async fn put_off(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        now: Timestamp,
    ) -> StoreResult<()>;

    /// Removes a member's devices, revoked ones that a graph's current epoch still names left out,
    /// and the member from the table directory. How many devices went, and which graphs' current
    /// epochs still name one.
    async fn erase_member(&self, member: &MemberId) -> StoreResult<(u64, Vec<StorageKey>)>;
}

/// A graph that is being erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// The store's own number for it. Another graph may have its key by now.
    pub id: u64,
    /// What its key was.
    pub graph: StorageKey,
    /// What is told of its blobs.
    pub reason: ForgetReason,
}

/// What a step of an erasure has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erased {
    /// Records that were removed.
    pub records: u64,
    /// Wraps, with what else there is about keys.
    pub wraps: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
    /// Blobs that are `forgetting` now: their objects are to be removed, then their rows.
    pub doomed: Vec<Doomed>,
    /// Whether there is more to do.
    pub more: bool,
}
