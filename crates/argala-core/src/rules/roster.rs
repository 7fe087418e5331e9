//! Who should hold a graph's key, and who does (protocol, route 5).

use std::collections::BTreeSet;

use argala_wire::{
    MemberId,
    devices::DeviceRef,
    graphs::{OwedRotation, RotationReason},
};

use crate::ports::store::Standing;

/// A graph's members, as the directory answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// All of them.
    pub all: BTreeSet<MemberId>,
    /// Those that are active.
    pub active: BTreeSet<MemberId>,
}

/// The holders of the current epoch that are off the roster, sorted, with the first reason that
/// applies: revoked, then removed, then inactive.
pub fn owed_rotations<'a>(
    standing: &'a Standing,
    members: &'a Members,
) -> impl Iterator<Item = OwedRotation> + 'a {
    standing.holders.iter().filter_map(|holder| {
        let device = &holder.device;
        let reason = if holder.revoked {
            RotationReason::DeviceRevoked
        } else if !members.all.contains(&device.member_id) {
            RotationReason::MemberRemoved
        } else if !members.active.contains(&device.member_id) {
            RotationReason::MemberInactive
        } else {
            return None;
        };
        Some(OwedRotation {
            member_id: device.member_id.clone(),
            device_id: device.device_id.clone(),
            reason,
        })
    })
}

/// Whether the directory alone puts a holder off the roster.
#[must_use]
pub fn directory_owes(standing: &Standing, members: &Members) -> bool {
    owed_rotations(standing, members).any(|owed| owed.reason != RotationReason::DeviceRevoked)
}

/// The devices on the roster that are no holders of the current epoch, sorted.
pub fn owed_grants(standing: &Standing) -> impl Iterator<Item = &DeviceRef> {
    let holders: BTreeSet<_> = standing
        .holders
        .iter()
        .map(|holder| &holder.device)
        .collect();
    standing
        .roster
        .iter()
        .filter(move |device| !holders.contains(device))
}
