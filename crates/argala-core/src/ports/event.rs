//! The eleven events (protocol, section 8).

use argala_wire::{MemberId, StorageKey, blobs::BlobPolicy, limits::Bucket};
use serde::{Serialize, Serializer};

use crate::Quota;

/// Why a blob was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForgetReason {
    /// A device deleted it.
    Requested,
    /// Its time to live passed.
    Expired,
    /// Every device that was to fetch it has.
    Delivered,
    /// An upload that was never finished.
    Orphaned,
    /// The graph's group has had no members for long.
    Abandoned,
}

impl ForgetReason {
    /// The name in events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Expired => "expired",
            Self::Delivered => "delivered",
            Self::Orphaned => "orphaned",
            Self::Abandoned => "abandoned",
        }
    }
}

fn quota_name<S: Serializer>(what: &Quota, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(what.as_str())
}

/// Something that happened. Safe to log: no record id, no key, no content.
///
/// Serialized, it is a map with its name under `type` and the members that the protocol gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the members are the protocol's, section 8")]
pub enum Event {
    /// A device published its keys; `fresh` where it had not before.
    #[serde(rename = "device.register")]
    DeviceRegister {
        member_id: MemberId,
        device_id: argala_wire::DeviceId,
        fresh: bool,
    },
    /// A device was revoked.
    #[serde(rename = "device.revoke")]
    DeviceRevoke {
        member_id: MemberId,
        device_id: argala_wire::DeviceId,
        graphs_flagged: u64,
    },
    /// Records were pushed; `bytes` of ciphertext were accepted.
    #[serde(rename = "graph.push")]
    GraphPush {
        member_id: MemberId,
        storage_key: StorageKey,
        accepted: u64,
        rejected: u64,
        bytes: u64,
    },
    /// Records were pulled.
    #[serde(rename = "graph.pull")]
    GraphPull {
        member_id: MemberId,
        storage_key: StorageKey,
        returned: u64,
        filtered: u64,
    },
    /// An epoch began.
    #[serde(rename = "graph.rotate")]
    GraphRotate {
        member_id: MemberId,
        storage_key: StorageKey,
        epoch: u64,
        devices: u64,
    },
    /// Devices were given wraps; `epoch` is the graph's current one.
    #[serde(rename = "graph.grant")]
    GraphGrant {
        member_id: MemberId,
        storage_key: StorageKey,
        epoch: u64,
        devices: u64,
    },
    /// A blob was stored.
    #[serde(rename = "blob.put")]
    BlobPut {
        member_id: MemberId,
        storage_key: StorageKey,
        size: u64,
        policy: BlobPolicy,
    },
    /// A blob was forgotten.
    #[serde(rename = "blob.forget")]
    BlobForget {
        storage_key: StorageKey,
        reason: ForgetReason,
    },
    /// A quota refused something.
    #[serde(rename = "quota.exceeded")]
    QuotaExceeded {
        member_id: MemberId,
        storage_key: StorageKey,
        #[serde(serialize_with = "quota_name")]
        what: Quota,
    },
    /// A member has used up an allowance.
    #[serde(rename = "ratelimit.hit")]
    RateLimitHit { member_id: MemberId, bucket: Bucket },
    /// A caller was refused as such.
    #[serde(rename = "auth.rejected")]
    AuthRejected { reason: &'static str },
}

impl Event {
    /// The names of all eleven.
    pub const NAMES: [&str; 11] = [
        "device.register",
        "device.revoke",
        "graph.push",
        "graph.pull",
        "graph.rotate",
        "graph.grant",
        "blob.put",
        "blob.forget",
        "quota.exceeded",
        "ratelimit.hit",
        "auth.rejected",
    ];

    /// The event's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DeviceRegister { .. } => "device.register",
            Self::DeviceRevoke { .. } => "device.revoke",
            Self::GraphPush { .. } => "graph.push",
            Self::GraphPull { .. } => "graph.pull",
            Self::GraphRotate { .. } => "graph.rotate",
            Self::GraphGrant { .. } => "graph.grant",
            Self::BlobPut { .. } => "blob.put",
            Self::BlobForget { .. } => "blob.forget",
            Self::QuotaExceeded { .. } => "quota.exceeded",
            Self::RateLimitHit { .. } => "ratelimit.hit",
            Self::AuthRejected { .. } => "auth.rejected",
        }
    }
}

/// Is told each event. Called on the path of the request: hand the event on, do not wait.
///
/// A sink that panics is contained and counted; the request goes on.
pub trait EventSink: Send + Sync + 'static {
    /// Takes note of `event`.
    fn emit(&self, event: &Event);
}

/// Takes note of nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _event: &Event) {}
}

/// Every closure that takes an event is a sink.
impl<F: Fn(&Event) + Send + Sync + 'static> EventSink for F {
    fn emit(&self, event: &Event) {
        self(event);
    }
}
