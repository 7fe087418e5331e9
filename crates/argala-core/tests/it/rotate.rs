//! Beginning an epoch (protocol, route 8).

use std::collections::BTreeSet;

use argala_core::{
    Rejection,
    ports::store::{Epoch, Rotate, Rotated},
    rules::{RotateView, Rotation, check_rotate, rotate, rotate::fingerprint},
};
use argala_testkit::{EPOCH, device_ref};
use argala_wire::{
    Sealed,
    devices::DeviceRef,
    keys::{MAX_WRAP_BYTES, MAX_WRAPS, RotateRequest, RotateWrap},
    limits::MAX_OWED,
};
use proptest::prelude::*;

use crate::given::{Standing, caller, devices, graph, key};

fn wrap(device: &DeviceRef, content: &[u8]) -> RotateWrap {
    RotateWrap {
        member_id: device.member_id.clone(),
        device_id: device.device_id.clone(),
        wrap: content.into(),
    }
}

fn request(epoch: u64, wraps: Vec<RotateWrap>) -> Rotate {
    Rotate {
        key: key(),
        by: caller().to_ref(),
        members: Vec::new(),
        epoch,
        fingerprint: fingerprint(&wraps),
        wraps,
        incarnation: 5,
        now: EPOCH,
    }
}

fn wraps_for(devices: impl IntoIterator<Item = DeviceRef>) -> Vec<RotateWrap> {
    let wraps = devices.into_iter().map(|device| wrap(&device, b"w"));
    wraps.collect()
}

fn path(result: Result<(), Rejection>) -> Option<String> {
    match result {
        Ok(()) => None,
        Err(Rejection::InvalidRequest { field, .. }) => Some(field.expect("one thing is at fault")),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_body_is_checked_by_itself() {
    let check = |wraps| path(check_rotate(&RotateRequest { epoch: 1, wraps }));
    let one = |bytes: usize| vec![wrap(&device_ref("sam", "a"), &vec![1; bytes])];
    assert_eq!(check(Vec::new()), None);
    assert_eq!(check(one(1)), None);
    assert_eq!(check(one(MAX_WRAP_BYTES)), None);
    assert_eq!(check(one(0)).as_deref(), Some("wraps[0].wrap"));
    assert_eq!(
        check(one(MAX_WRAP_BYTES + 1)).as_deref(),
        Some("wraps[0].wrap")
    );
    // A device id is unique within its member only.
    let mut wraps = wraps_for([
        device_ref("sam", "a"),
        device_ref("alex", "a"),
        device_ref("sam", "b"),
    ]);
    assert_eq!(check(wraps.clone()), None);
    wraps.push(wrap(&device_ref("alex", "a"), b"another"));
    assert_eq!(check(wraps).as_deref(), Some("wraps[3]"));

    let many = |count: usize| wraps_for((0..count).map(|n| device_ref("sam", &n.to_string())));
    assert_eq!(check(many(MAX_WRAPS)), None);
    assert_eq!(check(many(MAX_WRAPS + 1)).as_deref(), Some("wraps"));
}

proptest! {
    #[test]
    fn a_fingerprint_knows_no_order(
        wraps in prop::collection::btree_map(devices(), prop::collection::vec(any::<u8>(), 0..6), 0..8)
            .prop_map(|wraps| wraps.iter().map(|(device, bytes)| wrap(device, bytes)).collect::<Vec<_>>())
            .prop_flat_map(|wraps| (Just(wraps.clone()), Just(wraps).prop_shuffle()))
    ) {
        prop_assert_eq!(fingerprint(&wraps.0), fingerprint(&wraps.1));
    }

    /// Two sets of wraps have one fingerprint only where they are one set: neither a byte nor a
    /// boundary can move unseen.
    #[test]
    fn a_fingerprint_knows_every_byte(
        one in prop::collection::btree_map("[ab:]{1,2}", "[ab:]{0,2}", 0..3),
        other in prop::collection::btree_map("[ab:]{1,2}", "[ab:]{0,2}", 0..3),
    ) {
        let wraps = |map: &std::collections::BTreeMap<String, String>| {
            map.iter()
                .map(|(device, bytes)| wrap(&device_ref("sam", device), bytes.as_bytes()))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(fingerprint(&wraps(&one)) == fingerprint(&wraps(&other)), one == other);
    }

    /// The whole rule, against its words: caller, then epoch, then wraps.
    #[test]
    fn caller_then_epoch_then_roster(
        standing in prop::sample::select(Standing::ALL.to_vec()),
        keyed in prop::option::of((0..4_u64, 0..50_u64)),
        epoch in 0..6_u64,
        given in prop::collection::btree_set(devices(), 0..6),
        roster in prop::collection::btree_set(devices(), 0..6),
        equal: bool,
    ) {
        let given = if equal { roster.clone() } else { given };
        let graph = keyed.map(|(epoch, head)| graph(epoch, head));
        let (current, head) = keyed.unwrap_or((0, 0));
        let request = request(epoch, wraps_for(given.clone()));
        let roster: Vec<DeviceRef> = roster.into_iter().collect();
        let row = standing.row(&caller());
        let got = rotate(&request, RotateView {
            caller: row.as_ref(),
            graph: graph.as_ref(),
            roster: &roster,
            past: None,
        });
        let wanted_set: BTreeSet<DeviceRef> = roster.iter().cloned().collect();
        let wanted = if standing == Standing::Unregistered {
            Err(Rejection::DeviceUnregistered)
        } else if standing == Standing::Revoked {
            Err(Rejection::DeviceRevoked)
        } else if epoch != current + 1 {
            Err(Rejection::EpochConflict { epoch: current })
        } else if given == wanted_set {
            Ok(Rotation::Begin(Epoch {
                epoch,
                first_seq: head + 1,
                by: request.by.clone(),
                fingerprint: request.fingerprint,
                devices: given.len() as u64,
            }))
        } else {
            Err(Rejection::RotationIncomplete {
                missing: wanted_set.difference(&given).cloned().collect(),
                extra: given.difference(&wanted_set).cloned().collect(),
            })
        };
        prop_assert_eq!(got, wanted);
    }

    /// A repeat is told by who sent it and what; whoever else asks for a past epoch is told the
    /// one in force.
    #[test]
    fn only_the_same_request_of_the_same_device_is_a_repeat(
        current in 1..9_u64,
        behind in 0..9_u64,
        same_device: bool,
        same_wraps: bool,
        active: bool,
    ) {
        let epoch = current.saturating_sub(behind).max(1);
        let sent = request(epoch, wraps_for([device_ref("sam", "a")]));
        let past = Epoch {
            epoch,
            first_seq: 30,
            by: if same_device { sent.by.clone() } else { device_ref("sam", "other") },
            fingerprint: if same_wraps { sent.fingerprint } else { [0; 32] },
            devices: 1,
        };
        let graph = graph(current, 90);
        let row = if active { Standing::Active } else { Standing::Revoked }.row(&caller());
        let got = rotate(&sent, RotateView {
            caller: row.as_ref(),
            graph: Some(&graph),
            // The roster of now is not that of then, and no matter.
            roster: &[device_ref("alex", "new")],
            past: Some(&past),
        });
        let wanted = if !active {
            Err(Rejection::DeviceRevoked)
        } else if same_device && same_wraps {
            Ok(Rotation::Replay(Rotated { epoch, first_seq: 30, devices: 1, replay: true }))
        } else {
            Err(Rejection::EpochConflict { epoch: current })
        };
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn lists_of_what_is_wrong_are_cut() {
    let numbered = |name: &str, count: usize| -> Vec<DeviceRef> {
        (0..count)
            .map(|n| device_ref(name, &format!("{n:05}")))
            .collect()
    };
    let row = Standing::Active.row(&caller());
    for count in [MAX_OWED, MAX_OWED + 1] {
        let roster = numbered("sam", count);
        let got = rotate(
            &request(1, wraps_for(numbered("alex", count))),
            RotateView {
                caller: row.as_ref(),
                graph: None,
                roster: &roster,
                past: None,
            },
        );
        let wanted = Rejection::RotationIncomplete {
            missing: numbered("sam", MAX_OWED),
            extra: numbered("alex", MAX_OWED),
        };
        assert_eq!(got, Err(wanted));
    }
}

#[test]
fn there_is_no_epoch_after_the_last() {
    let graph = graph(u64::MAX, 0);
    let row = Standing::Active.row(&caller());
    for epoch in [0, 1, u64::MAX] {
        let got = rotate(
            &request(epoch, Vec::new()),
            RotateView {
                caller: row.as_ref(),
                graph: Some(&graph),
                roster: &[],
                past: None,
            },
        );
        assert_eq!(got, Err(Rejection::EpochConflict { epoch: u64::MAX }));
    }
}

#[test]
fn a_wrap_is_not_compared_by_its_length() {
    let device = device_ref("sam", "a");
    let one = RotateWrap {
        wrap: Sealed(vec![1]),
        ..wrap(&device, b"")
    };
    let other = RotateWrap {
        wrap: Sealed(vec![2]),
        ..one.clone()
    };
    assert_ne!(fingerprint(&[one]), fingerprint(&[other]));
}
