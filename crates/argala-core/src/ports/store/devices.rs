//! Requests and answers about devices.

use argala_wire::{
    DeviceId, MemberId, Sealed, StorageKey, Timestamp,
    devices::{Device, DeviceKind, DeviceRef, Suite},
};

/// A device publishes its keys. Its proof has been verified, its lengths checked.
#[derive(Debug, Clone)]
pub struct Register {
    /// The calling device.
    pub device: DeviceRef,
    /// The suite of its keys.
    pub suite: Suite,
    /// What stands behind it.
    pub kind: DeviceKind,
    /// Its public encryption key.
    pub encryption_key: Sealed,
    /// Its public signing key.
    pub signing_key: Sealed,
    /// Its sealed label; `None` leaves the one that is there.
    pub label: Option<Sealed>,
    /// When the request came.
    pub now: Timestamp,
    /// Active devices that a member may have.
    pub max_devices: u64,
}

/// A registered device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The device as it now stands.
    pub device: Device,
    /// Whether it was not there before.
    pub fresh: bool,
}

/// A place in the list of a member's devices, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceMark {
    /// When the device at this place was registered.
    pub registered_at: Timestamp,
    /// The device at this place.
    pub device_id: DeviceId,
}

/// A member revokes one of their devices.
#[derive(Debug, Clone)]
pub struct Revoke {
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// The device to revoke, of the same member; may be the calling one.
    pub device_id: DeviceId,
    /// When the request came.
    pub now: Timestamp,
}

/// A revoked device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    /// Whether it was active before.
    pub fresh: bool,
    /// Graphs that owe a rotation because of it, by storage key; none where it was not `fresh`.
    pub flagged: Vec<StorageKey>,
}

/// Asks for the devices of a graph.
#[derive(Debug, Clone)]
pub struct GraphDevicesQuery {
    /// The graph, which need not exist yet.
    pub key: StorageKey,
    /// The graph's active members; their active devices are the roster.
    pub members: Vec<MemberId>,
    /// Whether every device that ever held a wrap of the graph is wanted beside the roster.
    pub former: bool,
    /// Where the last page ended.
    pub after: Option<DeviceRef>,
    /// How many at the most.
    pub limit: usize,
}
