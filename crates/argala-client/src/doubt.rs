//! What the relay told that no honest one tells, kept until somebody has looked at it.
//!
//! An event is told once, and whoever was not looking has missed it. So what casts doubt on the
//! relay itself is also kept in the key file, and [`Session::status`](crate::Session::status)
//! shows it until it is forgotten on purpose. Refused records are kept by each graph's state.

use argala_wire::{StorageKey, devices::DeviceRef};
use serde::{Deserialize, Serialize};

use crate::events::Event;

/// The most that are kept: a relay that lies in ever new ways must not fill the key file, and
/// whoever sees so many needs no more.
pub(crate) const MOST: usize = 100;

/// Something that the relay told and that was not believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Doubt {
    /// It shows other keys for a device than when that was first seen.
    #[serde(rename = "device.changed")]
    DeviceChanged {
        /// The device.
        device: DeviceRef,
    },
    /// It shows a device as active that was revoked before.
    #[serde(rename = "device.returned")]
    DeviceReturned {
        /// The device.
        device: DeviceRef,
    },
    /// It handed out a wrap that does not open, or that nobody known gave.
    #[serde(rename = "wrap.rejected")]
    WrapRejected {
        /// The graph that the wrap claims to be of.
        storage_key: StorageKey,
        /// The epoch that it claims to be of.
        epoch: u64,
        /// The device that the relay names as its giver.
        by: DeviceRef,
    },
    /// It told an older epoch of a graph than this device has a key of.
    #[serde(rename = "epoch.went_back")]
    EpochWentBack {
        /// The graph.
        storage_key: StorageKey,
        /// The newest epoch whose key was here then.
        held: u64,
    },
}

impl Doubt {
    /// The doubt that an event casts; `None` for one that an honest relay gives cause to.
    pub(crate) fn of(
        event: &Event,
        key: impl FnOnce(&argala_wire::GraphId) -> StorageKey,
    ) -> Option<Self> {
        match event {
            Event::DeviceChanged { device } => Some(Self::DeviceChanged {
                device: device.clone(),
            }),
            Event::DeviceReturned { device } => Some(Self::DeviceReturned {
                device: device.clone(),
            }),
            Event::WrapRejected { graph, epoch, by } => Some(Self::WrapRejected {
                storage_key: key(graph),
                epoch: *epoch,
                by: by.clone(),
            }),
            Event::EpochWentBack { graph, held, .. } => Some(Self::EpochWentBack {
                storage_key: key(graph),
                held: *held,
            }),
            _ => None,
        }
    }

    /// The graph that it is about, where it is about one.
    #[must_use]
    pub const fn storage_key(&self) -> Option<&StorageKey> {
        match self {
            Self::DeviceChanged { .. } | Self::DeviceReturned { .. } => None,
            Self::WrapRejected { storage_key, .. } | Self::EpochWentBack { storage_key, .. } => {
                Some(storage_key)
            }
        }
    }

    /// The device that it is about, where it is about one.
    #[must_use]
    pub const fn device(&self) -> Option<&DeviceRef> {
        match self {
            Self::DeviceChanged { device } | Self::DeviceReturned { device } => Some(device),
            Self::WrapRejected { .. } | Self::EpochWentBack { .. } => None,
        }
    }

    /// The name in output: that of the event.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DeviceChanged { .. } => "device.changed",
            Self::DeviceReturned { .. } => "device.returned",
            Self::WrapRejected { .. } => "wrap.rejected",
            Self::EpochWentBack { .. } => "epoch.went_back",
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DeviceChanged { device } => write!(
                f,
                "the relay showed other keys than before for {}/{}",
                device.member_id, device.device_id
            ),
            Self::DeviceReturned { device } => write!(
                f,
                "the relay showed {}/{} as active, which was revoked before",
                device.member_id, device.device_id
            ),
            Self::WrapRejected {
                storage_key,
                epoch,
                by,
            } => write!(
                f,
                "{storage_key}: the key of epoch {epoch} from {}/{} did not open",
                by.member_id, by.device_id
            ),
            Self::EpochWentBack { storage_key, held } => write!(
                f,
                "{storage_key}: the relay told an older epoch than {held}, whose key is here"
            ),
        }
    }
}
