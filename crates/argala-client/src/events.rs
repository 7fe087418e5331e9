//! What a session tells its application while it works: what went wrong without stopping it, and
//! how far it has come.

use std::{fmt, sync::Arc};

use argala_wire::{GraphId, devices::DeviceRef, records::CursorReason};

use crate::{crypto::Fingerprint, error::Refusal};

/// Something that a person or an application should know of. Safe to log: no record's id, no key,
/// no plaintext.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The device has no key of the graph's current epoch; writes are held until it is granted.
    KeysBehind {
        /// The graph.
        graph: GraphId,
    },
    /// A record was refused, by the relay or by this client; it is kept and counted.
    RecordRejected {
        /// The graph.
        graph: GraphId,
        /// Why.
        why: Refusal,
    },
    /// A wrap does not open, or nobody known gave it: somebody may be passing off a key.
    WrapRejected {
        /// The graph.
        graph: GraphId,
        /// The epoch that it claims to be of.
        epoch: u64,
        /// The device that the relay names as its giver.
        by: DeviceRef,
    },
    /// A key is there for this device, and its giver was never listed: it is not used until that
    /// has happened.
    WrapHeld {
        /// The graph.
        graph: GraphId,
        /// The epoch that it is of.
        epoch: u64,
        /// Its giver.
        by: DeviceRef,
    },
    /// The relay tells an older epoch than this device has a key of, which no honest one does;
    /// records are sealed under the newest key all the same.
    EpochWentBack {
        /// The graph.
        graph: GraphId,
        /// The epoch that the relay tells.
        told: u64,
        /// The newest epoch whose key is here.
        held: u64,
    },
    /// A device was seen that never was before; nothing is sealed for it until it has been listed.
    DeviceNew {
        /// The device.
        device: DeviceRef,
        /// What to compare with its owner.
        fingerprint: Fingerprint,
    },
    /// The relay shows other keys for a device than before; the old ones are kept.
    DeviceChanged {
        /// The device.
        device: DeviceRef,
    },
    /// The relay shows a device as active that was revoked, which no honest one does; nothing is
    /// sealed for it.
    DeviceReturned {
        /// The device.
        device: DeviceRef,
    },
    /// The relay no longer accepts a position; the graph is read again from its start.
    StartedOver {
        /// The graph.
        graph: GraphId,
        /// Why, where the relay told.
        why: Option<CursorReason>,
    },
}

impl Event {
    /// The name in output.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KeysBehind { .. } => "keys.behind",
            Self::RecordRejected { .. } => "record.rejected",
            Self::WrapRejected { .. } => "wrap.rejected",
            Self::WrapHeld { .. } => "wrap.held",
            Self::EpochWentBack { .. } => "epoch.went_back",
            Self::DeviceNew { .. } => "device.new",
            Self::DeviceChanged { .. } => "device.changed",
            Self::DeviceReturned { .. } => "device.returned",
            Self::StartedOver { .. } => "pull.started_over",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeysBehind { graph } => {
                write!(
                    f,
                    "{graph}: this device has no key of the current epoch; writes are held"
                )
            }
            Self::RecordRejected { graph, why } => {
                write!(f, "{graph}: a record was refused ({})", why.as_str())
            }
            Self::WrapRejected { graph, epoch, by } => write!(
                f,
                "{graph}: the key of epoch {epoch} from {}/{} does not open and is not used",
                by.member_id, by.device_id
            ),
            Self::WrapHeld { graph, epoch, by } => write!(
                f,
                "{graph}: the key of epoch {epoch} is from {}/{}, which was never listed here; it is \
                 used once it has been",
                by.member_id, by.device_id
            ),
            Self::EpochWentBack { graph, told, held } => write!(
                f,
                "{graph}: the relay tells epoch {told}, and this device has the key of epoch {held}"
            ),
            Self::DeviceNew {
                device,
                fingerprint,
            } => write!(
                f,
                "{}/{} was never seen before; its fingerprint is {fingerprint}",
                device.member_id, device.device_id
            ),
            Self::DeviceChanged { device } => write!(
                f,
                "the relay shows other keys than before for {}/{}; they are not used",
                device.member_id, device.device_id
            ),
            Self::DeviceReturned { device } => write!(
                f,
                "the relay shows {}/{} as active, which was revoked; nothing is sealed for it",
                device.member_id, device.device_id
            ),
            Self::StartedOver { graph, .. } => {
                write!(
                    f,
                    "{graph}: the relay no longer accepts the cursor; reading from the start"
                )
            }
        }
    }
}

/// Is told of every event, as it happens.
pub type ObserverFn = Arc<dyn Fn(&Event) + Send + Sync>;

/// How far a transfer has come, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

/// Is told how far a transfer has come, some times a second or more.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;
