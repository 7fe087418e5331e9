//! Requests and answers about graphs and their keys.

use argala_wire::{
    GroupId, MemberId, StorageKey, Timestamp,
    devices::DeviceRef,
    keys::{GrantRejection, GrantWrap, RotateWrap, Wrap},
};

use super::Counters;

/// A graph's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// The graph.
    pub key: StorageKey,
    /// Its current epoch; 0 only in the moment between creating the row and the first rotate.
    pub epoch: u64,
    /// Its newest seq.
    pub head: u64,
    /// What it holds.
    pub counters: Counters,
    /// A random number of its creation, renewed when a backup is restored. Not zero.
    pub incarnation: u64,
    /// Tombstones of seqs up to this one may have been swept.
    pub floor: u64,
    /// A device that held a wrap of the current epoch was revoked.
    pub revocation_owed: bool,
    /// The directory put a holder of the current epoch off the roster, when it was last asked.
    pub directory_owed: bool,
}

impl Graph {
    /// The stored flag that routes 4 and 11 tell.
    #[must_use]
    pub const fn rotation_owed(&self) -> bool {
        self.revocation_owed || self.directory_owed
    }
}

/// Asks for a member's graphs.
#[derive(Debug, Clone)]
pub struct GraphsQuery {
    /// The calling device.
    pub device: DeviceRef,
    /// The groups that the directory lists for the member; `None` where it cannot list them:
    /// then those groups' graphs of which a device of the member ever held a wrap.
    pub groups: Option<Vec<GroupId>>,
    /// Where the last page ended.
    pub after: Option<StorageKey>,
    /// How many at the most.
    pub limit: usize,
}

/// One graph in a member's list: their own, a pair's that they are of, or a group's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphListing {
    /// The graph.
    pub graph: Graph,
    /// Whether the calling device has a wrap, not blanked, of the current epoch.
    pub holds_current: bool,
}

/// A device that was given a wrap of the current epoch, blanked or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The device.
    pub device: DeviceRef,
    /// Whether it has been revoked.
    pub revoked: bool,
}

/// A graph, who holds its key and who should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The graph.
    pub graph: Graph,
    /// Holders of the current epoch, sorted.
    pub holders: Vec<Holder>,
    /// Active devices of the members that were asked about, sorted.
    pub roster: Vec<DeviceRef>,
}

/// Asks for one device's wraps of a graph.
#[derive(Debug, Clone)]
pub struct WrapsQuery {
    /// The graph.
    pub key: StorageKey,
    /// The device.
    pub device: DeviceRef,
    /// Epochs after this one only.
    pub after: u64,
    /// How many at the most.
    pub limit: usize,
}

/// One device's wraps of a graph, of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrapsPage {
    /// The graph's current epoch; 0 where it does not exist.
    pub epoch: u64,
    /// The wraps.
    pub wraps: Vec<Wrap>,
}

/// A device begins an epoch.
#[derive(Debug, Clone)]
pub struct Rotate {
    /// The graph.
    pub key: StorageKey,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// The graph's active members, as the directory answered during this request.
    pub members: Vec<MemberId>,
    /// The epoch to begin.
    pub epoch: u64,
    /// The wraps; no target twice.
    pub wraps: Vec<RotateWrap>,
    /// [`crate::rules::rotate::fingerprint`] of the wraps.
    pub fingerprint: [u8; 32],
    /// The graph's incarnation, should this create it.
    pub incarnation: u64,
    /// When the request came.
    pub now: Timestamp,
}

/// An epoch's row: who began it, so that a repeated rotate can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// The epoch.
    pub epoch: u64,
    /// The first seq it can carry.
    pub first_seq: u64,
    /// Who began it.
    pub by: DeviceRef,
    /// [`crate::rules::rotate::fingerprint`] of its wraps.
    pub fingerprint: [u8; 32],
    /// How many devices were given a wrap when it began.
    pub devices: u64,
}

/// A begun epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The epoch.
    pub epoch: u64,
    /// The first seq it can carry.
    pub first_seq: u64,
    /// How many devices were given a wrap.
    pub devices: u64,
    /// Whether it had begun before, by the same request.
    pub replay: bool,
}

/// A device gives others wraps.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The graph.
    pub key: StorageKey,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// The graph's active members, as the directory answered during this request.
    pub members: Vec<MemberId>,
    /// The wraps; no target twice.
    pub wraps: Vec<GrantWrap>,
    /// When the request came.
    pub now: Timestamp,
}

/// What became of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The graph's current epoch.
    pub epoch: u64,
    /// How many wraps are in place, those that were there identically included.
    pub granted: u64,
    /// How many devices those are for.
    pub devices: u64,
    /// Members for whom something is new, sorted.
    pub poke: Vec<MemberId>,
    /// Wraps that were not taken, in the order sent.
    pub rejected: Vec<GrantRejection>,
}
