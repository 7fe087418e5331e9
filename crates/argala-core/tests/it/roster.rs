//! Who should hold a graph's key, and who does (protocol, route 5).

use std::collections::BTreeSet;

use argala_core::{
    ports::store::{Holder, Standing},
    rules::roster::{Members, directory_owes, owed_grants, owed_rotations},
};
use argala_wire::{
    devices::DeviceRef,
    graphs::{OwedRotation, RotationReason},
};
use proptest::prelude::*;

use crate::given::{devices, graph};

fn members() -> impl Strategy<Value = Members> {
    let some = || prop::collection::btree_set(devices().prop_map(|device| device.member_id), 0..5);
    (some(), some()).prop_map(|(all, active)| Members {
        active: active.intersection(&all).cloned().collect(),
        all,
    })
}

proptest! {
    /// Each holder off the roster is told once, by the first reason that applies, in order; each
    /// device on it without a wrap is owed one; nobody is in both lists.
    #[test]
    fn what_is_owed(
        holders in prop::collection::btree_map(devices(), any::<bool>(), 0..12),
        members in members(),
        others in prop::collection::btree_set(devices(), 0..12),
    ) {
        let revoked = |device: &DeviceRef| holders.get(device) == Some(&true);
        let active = |device: &DeviceRef| members.active.contains(&device.member_id);
        // The roster: active devices of active members, holders or not.
        let roster: BTreeSet<DeviceRef> = holders.keys().chain(&others)
            .filter(|device| active(device) && !revoked(device))
            .cloned()
            .collect();
        let standing = Standing {
            graph: graph(3, 9),
            holders: holders.iter()
                .map(|(device, revoked)| Holder { device: device.clone(), revoked: *revoked })
                .collect(),
            roster: roster.iter().cloned().collect(),
        };

        let owed: Vec<OwedRotation> = owed_rotations(&standing, &members).collect();
        let named: Vec<DeviceRef> = owed.iter()
            .map(|owed| DeviceRef { member_id: owed.member_id.clone(), device_id: owed.device_id.clone() })
            .collect();
        let off: Vec<DeviceRef> = holders.keys()
            .filter(|device| !roster.contains(device))
            .cloned()
            .collect();
        prop_assert_eq!(&named, &off);
        for (owed, device) in owed.iter().zip(&named) {
            let wanted = if revoked(device) {
                RotationReason::DeviceRevoked
            } else if !members.all.contains(&device.member_id) {
                RotationReason::MemberRemoved
            } else {
                RotationReason::MemberInactive
            };
            prop_assert_eq!(owed.reason, wanted);
        }

        let by_directory = off.iter().any(|device| !revoked(device));
        prop_assert_eq!(directory_owes(&standing, &members), by_directory);

        let grants: Vec<DeviceRef> = owed_grants(&standing).cloned().collect();
        let wanted: Vec<DeviceRef> = roster.iter()
            .filter(|device| !holders.contains_key(device))
            .cloned()
            .collect();
        prop_assert_eq!(grants, wanted);
    }
}
