//! Beginning an epoch (protocol, route 8).

use std::collections::BTreeSet;

use argala_wire::{
    devices::{Device, DeviceRef},
    keys::{MAX_WRAP_BYTES, MAX_WRAPS, RotateRequest, RotateWrap},
    limits::MAX_OWED,
};
use sha2::{Digest, Sha256};

use super::active;
use crate::{
    Rejection,
    ports::store::{Epoch, Graph, Rotate, Rotated},
};

/// Holds what the body alone tells: at most 20,000 wraps, each of 1 to 4,096 bytes, no target
/// twice.
///
/// # Errors
/// [`Rejection::InvalidRequest`] with the path of what is at fault.
pub fn check_rotate(request: &RotateRequest) -> Result<(), Rejection> {
    check_wraps(
        request
            .wraps
            .iter()
            .map(|wrap| ((0, &wrap.member_id, &wrap.device_id), wrap.wrap.len())),
    )
}

/// Holds what rotate and grant share; `wraps` gives each wrap's target and length.
pub(super) fn check_wraps<T: Ord>(
    wraps: impl ExactSizeIterator<Item = (T, usize)>,
) -> Result<(), Rejection> {
    if wraps.len() > MAX_WRAPS {
        return Err(Rejection::invalid(
            "wraps",
            "there are more than 20,000 wraps",
        ));
    }
    let mut targets = BTreeSet::new();
    for (at, (target, length)) in wraps.enumerate() {
        if length == 0 || length > MAX_WRAP_BYTES {
            let detail = "a wrap has 1 to 4,096 bytes";
            return Err(Rejection::invalid(format!("wraps[{at}].wrap"), detail));
        }
        if !targets.insert(target) {
            let detail = "an earlier wrap has the same target";
            return Err(Rejection::invalid(format!("wraps[{at}]"), detail));
        }
    }
    Ok(())
}

/// SHA-256 over the wraps in the order of their targets: equal for the same wraps in any order.
#[must_use]
pub fn fingerprint(wraps: &[RotateWrap]) -> [u8; 32] {
    let mut sorted: Vec<_> = wraps.iter().collect();
    sorted.sort_by_key(|wrap| (&wrap.member_id, &wrap.device_id));
    let mut hash = Sha256::new();
    for wrap in sorted {
        for part in [
            wrap.member_id.as_str().as_bytes(),
            wrap.device_id.as_str().as_bytes(),
            &wrap.wrap.0,
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().into()
}

/// What a rotation is decided on, read under its locks.
#[derive(Debug, Clone, Copy)]
pub struct RotateView<'a> {
    /// The calling device.
    pub caller: Option<&'a Device>,
    /// The graph, or `None` (or an epoch of 0) where this is its first epoch.
    pub graph: Option<&'a Graph>,
    /// The active devices of the request's members, sorted.
    pub roster: &'a [DeviceRef],
    /// The row of the epoch that is asked for, where it has begun before.
    pub past: Option<&'a Epoch>,
}

/// What a rotation writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotation {
    /// This epoch's row, the request's wraps, and the graph's new epoch with both flags down.
    Begin(Epoch),
    /// Nothing: the same device began this epoch with the same wraps before.
    Replay(Rotated),
}

/// Decides a rotation.
///
/// # Errors
/// Those of [`active`]; [`Rejection::EpochConflict`] for any epoch but the next, told before
/// anything about the wraps; [`Rejection::RotationIncomplete`].
pub fn rotate(request: &Rotate, view: RotateView<'_>) -> Result<Rotation, Rejection> {
    active(view.caller)?;
    let (current, head) = view.graph.map_or((0, 0), |graph| (graph.epoch, graph.head));
    if Some(request.epoch) != current.checked_add(1) {
        return match view.past {
            Some(past) if past.by == request.by && past.fingerprint == request.fingerprint => {
                Ok(Rotation::Replay(Rotated {
                    epoch: past.epoch,
                    first_seq: past.first_seq,
                    devices: past.devices,
                    replay: true,
                }))
            }
            _ => Err(Rejection::EpochConflict { epoch: current }),
        };
    }
    let given: BTreeSet<_> = request
        .wraps
        .iter()
        .map(|wrap| (&wrap.member_id, &wrap.device_id))
        .collect();
    let wanted: BTreeSet<_> = view
        .roster
        .iter()
        .map(|device| (&device.member_id, &device.device_id))
        .collect();
    if given != wanted {
        let name = |&(member_id, device_id): &(&_, &_)| DeviceRef {
            member_id: Clone::clone(member_id),
            device_id: Clone::clone(device_id),
        };
        return Err(Rejection::RotationIncomplete {
            missing: wanted.difference(&given).take(MAX_OWED).map(name).collect(),
            extra: given.difference(&wanted).take(MAX_OWED).map(name).collect(),
        });
    }
    Ok(Rotation::Begin(Epoch {
        epoch: request.epoch,
        first_seq: head + 1,
        by: request.by.clone(),
        fingerprint: request.fingerprint,
        devices: request.wraps.len() as u64,
    }))
}
