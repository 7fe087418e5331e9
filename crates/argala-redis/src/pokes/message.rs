//! What is published on a channel.

use argala_core::ports::Poke;
use argala_wire::{MemberId, StorageKey, devices::DeviceRef};
use serde::{Deserialize, Serialize};

/// One message. A replica that cannot read one tells the member's streams to resync, so a later
/// version may say more without an earlier one missing anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    /// Which replica says so. It has told its own streams.
    pub(super) from: String,
    /// The graph that changed; none where nobody knows any more which ones did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) graph: Option<StorageKey>,
    /// The device that need not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) except: Option<(MemberId, argala_wire::DeviceId)>,
}

impl Message {
    pub(super) fn poke(from: &str, poke: &Poke) -> Self {
        Self {
            from: from.to_owned(),
            graph: Some(poke.storage_key.clone()),
            except: poke
                .except
                .as_ref()
                .map(|device| (device.member_id.clone(), device.device_id.clone())),
        }
    }

    pub(super) fn resync(from: &str) -> Self {
        Self {
            from: from.to_owned(),
            graph: None,
            except: None,
        }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a message has a JSON form")
    }

    /// The poke of `member` that this is; `None` where it is to resync.
    pub(super) fn into_poke(self, member: MemberId) -> Option<Poke> {
        Some(Poke {
            storage_key: self.graph?,
            members: vec![member],
            except: self.except.map(|(member_id, device_id)| DeviceRef {
                member_id,
                device_id,
            }),
        })
    }
}
