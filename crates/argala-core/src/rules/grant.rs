//! Giving wraps to devices (protocol, route 9).

use std::collections::{BTreeMap, BTreeSet};

use argala_wire::{
    Sealed,
    devices::{Device, DeviceRef},
    keys::{GrantReason, GrantRejection, GrantRequest},
};

use super::{active, rotate::check_wraps};
use crate::{
    Rejection,
    ports::store::{Grant, Granted, Graph},
};

/// Holds what the body alone tells: at most 20,000 wraps, each of 1 to 4,096 bytes, no target
/// (epoch, member, device) twice.
///
/// # Errors
/// [`Rejection::InvalidRequest`] with the path of what is at fault.
pub fn check_grant(request: &GrantRequest) -> Result<(), Rejection> {
    check_wraps(request.wraps.iter().map(|wrap| {
        (
            (wrap.epoch, &wrap.member_id, &wrap.device_id),
            wrap.wrap.len(),
        )
    }))
}

/// What a grant is decided on, read under its locks.
#[derive(Debug, Clone, Copy)]
pub struct GrantView<'a> {
    /// The calling device.
    pub caller: Option<&'a Device>,
    /// The graph.
    pub graph: Option<&'a Graph>,
    /// The active devices of the request's members.
    pub roster: &'a BTreeSet<DeviceRef>,
    /// Epochs of which the calling device has a wrap, not blanked.
    pub held: &'a BTreeSet<u64>,
    /// The wraps there are for the request's targets; `None` for a blanked one.
    pub existing: &'a BTreeMap<(u64, DeviceRef), Option<Sealed>>,
}

/// What a grant writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDecision {
    /// Which of the request's wraps to add, by their place in it.
    pub insert: Vec<usize>,
    /// What came of it.
    pub outcome: Granted,
}

/// Decides a grant. Of several faults of one wrap the first in the order of [`GrantReason`] is
/// told. A wrap is never overwritten; one that is there identically counts as granted.
///
/// # Errors
/// Those of [`active`]; [`Rejection::GraphUnkeyed`].
pub fn grant(request: &Grant, view: GrantView<'_>) -> Result<GrantDecision, Rejection> {
    active(view.caller)?;
    let graph = view
        .graph
        .filter(|graph| graph.epoch > 0)
        .ok_or(Rejection::GraphUnkeyed)?;
    let mut insert = Vec::new();
    let mut rejected = Vec::new();
    let mut devices = BTreeSet::new();
    let mut poke = BTreeSet::new();
    for (at, wrap) in request.wraps.iter().enumerate() {
        let target = DeviceRef {
            member_id: wrap.member_id.clone(),
            device_id: wrap.device_id.clone(),
        };
        let key = (wrap.epoch, target);
        let reason = if !view.roster.contains(&key.1) {
            Some(GrantReason::NotOnRoster)
        } else if wrap.epoch == 0 || wrap.epoch > graph.epoch {
            Some(GrantReason::UnknownEpoch)
        } else if !view.held.contains(&wrap.epoch) {
            Some(GrantReason::NotHolder)
        } else {
            match view.existing.get(&key) {
                None => {
                    insert.push(at);
                    poke.insert(wrap.member_id.clone());
                    None
                }
                Some(Some(there)) if *there == wrap.wrap => None,
                Some(_) => Some(GrantReason::WrapExists),
            }
        };
        match reason {
            None => {
                devices.insert(key.1);
            }
            Some(reason) => rejected.push(GrantRejection {
                epoch: wrap.epoch,
                member_id: wrap.member_id.clone(),
                device_id: wrap.device_id.clone(),
                reason,
            }),
        }
    }
    let outcome = Granted {
        epoch: graph.epoch,
        granted: (request.wraps.len() - rejected.len()) as u64,
        devices: devices.len() as u64,
        poke: poke.into_iter().collect(),
        rejected,
    };
    Ok(GrantDecision { insert, outcome })
}
