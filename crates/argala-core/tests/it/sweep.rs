//! What a sweep may forget.

use std::time::Duration;

use argala_core::{
    ports::store::Emptiness,
    rules::sweep::{
        ABANDONED_AFTER, UNBROKEN_WITHIN, emptiness, is_abandoned, is_delivered, keys_before,
    },
};
use argala_wire::{Timestamp, devices::DeviceRef};
use proptest::prelude::*;

use crate::given::devices;

const HOUR: i64 = 60 * 60 * 1_000;

/// What the directory has said, and when: hours since it was asked before, and whether it named
/// nobody.
fn answers() -> impl Strategy<Value = Vec<(i64, bool)>> {
    let hours = prop_oneof![8 => 20..30_i64, 1 => 60..80_i64];
    prop::collection::vec((hours, prop::bool::weighted(0.97)), 1..60)
}

proptest! {
    /// A graph is given up only where every answer of the last thirty days named nobody, with none
    /// more than three days after the one before.
    #[test]
    fn a_group_is_abandoned_after_an_unbroken_emptiness(answers in answers()) {
        let mut known: Option<Emptiness> = None;
        // Since when all that was heard is an emptiness, told anew from the answers each time.
        let mut heard: Vec<(i64, bool)> = Vec::new();
        let mut now = 0;
        for (hours, empty) in answers {
            now += hours * HOUR;
            heard.push((now, empty));
            known = empty.then(|| emptiness(known, Timestamp::from_millis(now)));
            let mut since = now;
            for pair in heard.windows(2).rev() {
                let gap = u128::try_from(pair[1].0 - pair[0].0).expect("time goes on");
                if !pair[0].1 || gap > UNBROKEN_WITHIN.as_millis() {
                    break;
                }
                since = pair[0].0;
            }
            let long = u128::try_from(now - since).expect("time goes on") >= ABANDONED_AFTER.as_millis();
            prop_assert_eq!(known.is_some_and(is_abandoned), empty && long);
        }
    }

    /// By each device of the roster but the uploader's, of which there is one.
    #[test]
    fn a_blob_is_delivered_when_all_others_have_it(
        roster in prop::collection::btree_set(devices(), 0..5),
        by in devices(),
        fetched in prop::collection::btree_set(devices(), 0..40),
    ) {
        let others: Vec<&DeviceRef> = roster.iter().filter(|device| **device != by).collect();
        let wanted = !others.is_empty() && others.iter().all(|device| fetched.contains(*device));
        let list = |set: &std::collections::BTreeSet<DeviceRef>| set.iter().cloned().collect::<Vec<_>>();
        prop_assert_eq!(is_delivered(&list(&roster), &by, &list(&fetched)), wanted);
    }

    /// A key is kept for its window and half a day more at the most, and slots go whole.
    #[test]
    fn keys_go_by_half_days(now in 0..(1_i64 << 45), hours in 0..100_u64) {
        let window = Duration::from_secs(hours * 60 * 60);
        let before = keys_before(Timestamp::from_millis(now), window).as_millis();
        let since = now - i64::try_from(window.as_millis()).expect("small");
        prop_assert!(before <= since && since - before < 12 * HOUR);
        prop_assert_eq!(before.rem_euclid(12 * HOUR), 0);
    }
}
