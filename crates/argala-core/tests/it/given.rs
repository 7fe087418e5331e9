//! What the rules are given: rows as a store would have read them.

use argala_core::ports::store::{Counters, Graph};
use argala_testkit::{EPOCH, TestDevice, device_ref, group};
use argala_wire::{
    StorageKey,
    devices::{Device, DeviceRef},
};
use proptest::prelude::*;

/// The key of the graph that most tests speak of.
pub(crate) fn key() -> StorageKey {
    StorageKey::group(&group("acme"))
}

/// A graph without records.
pub(crate) fn graph(epoch: u64, head: u64) -> Graph {
    Graph {
        key: key(),
        epoch,
        head,
        counters: Counters::default(),
        incarnation: 77,
        floor: 0,
        revocation_owed: false,
        directory_owed: false,
    }
}

/// A device as it stands: registered or not, revoked or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unregistered,
    Active,
    Revoked,
}

impl Standing {
    pub(crate) const ALL: [Self; 3] = [Self::Unregistered, Self::Active, Self::Revoked];

    pub(crate) fn row(self, device: &TestDevice) -> Option<Device> {
        let row = device.registered(EPOCH);
        match self {
            Self::Unregistered => None,
            Self::Active => Some(row),
            Self::Revoked => Some(Device {
                revoked_at: Some(EPOCH),
                ..row
            }),
        }
    }
}

/// The device that calls.
pub(crate) fn caller() -> TestDevice {
    TestDevice::new("sam", "laptop")
}

/// One of twelve devices, of four members whose ids hosts really use.
pub(crate) fn devices() -> impl Strategy<Value = DeviceRef> {
    let member = prop::sample::select(vec!["sam", "user:7", "auth0|42", "50%"]);
    let device = prop::sample::select(vec!["laptop", "phone", "🦀"]);
    (member, device).prop_map(|(member, device)| device_ref(member, device))
}
