//! What a sweep may forget. Each of these errs on the side of keeping.

use std::{collections::HashSet, time::Duration};

use argala_wire::{Timestamp, devices::DeviceRef};

use crate::ports::store::Emptiness;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a group must have been without members for its graph to be forgotten.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(30 * DAY.as_secs());
/// How often the directory is asked about a group.
pub const ASKED_EVERY: Duration = DAY;
/// How long nobody may have asked for two empty answers to be one emptiness: what was not looked
/// at is not known to have been empty.
pub const UNBROKEN_WITHIN: Duration = Duration::from_secs(3 * DAY.as_secs());
/// How long tombstones are kept.
pub const TOMBSTONES_FOR: Duration = Duration::from_secs(90 * DAY.as_secs());

/// Half a day: what a slot of idempotency keys holds.
const HALF_DAY: i64 = 12 * 60 * 60 * 1_000;

/// Whether a `deliver` blob has reached everybody: there is a device on the roster beside the
/// uploader's, and each of them has fetched it.
///
/// A roster without another device is no delivery: a directory that answers with nobody would
/// otherwise complete it.
#[must_use]
pub fn is_delivered(roster: &[DeviceRef], by: &DeviceRef, fetched: &[DeviceRef]) -> bool {
    // A set, since a roster may have ten thousand devices.
    let fetched: HashSet<_> = fetched.iter().collect();
    let mut others = roster.iter().filter(|device| *device != by).peekable();
    others.peek().is_some() && others.all(|device| fetched.contains(device))
}

/// What an empty answer at `now` makes of what was known.
#[must_use]
pub fn emptiness(known: Option<Emptiness>, now: Timestamp) -> Emptiness {
    match known {
        // A clock that was set back breaks it, too.
        Some(known) if known.until <= now && now.since(known.until) <= UNBROKEN_WITHIN => {
            Emptiness {
                until: now,
                ..known
            }
        }
        _ => Emptiness {
            since: now,
            until: now,
        },
    }
}

/// Whether a group has been without members for so long that its graph is to be forgotten.
#[must_use]
pub fn is_abandoned(empty: Emptiness) -> bool {
    empty.until.since(empty.since) >= ABANDONED_AFTER
}

/// Before when idempotency keys are dropped: a window ago, at the beginning of a slot, so that
/// slots go whole. A key outlives its window by half a day at the most; it answers nobody then.
#[must_use]
pub fn keys_before(now: Timestamp, window: Duration) -> Timestamp {
    let before = now.saturating_sub(window).as_millis();
    Timestamp::from_millis(before - before.rem_euclid(HALF_DAY))
}
