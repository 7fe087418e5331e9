//! Giving wraps to devices (protocol, route 9).

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    Rejection,
    ports::store::Grant,
    rules::{GrantView, check_grant, grant},
};
use argala_testkit::{EPOCH, device_ref, member};
use argala_wire::{
    Sealed,
    devices::DeviceRef,
    keys::{GrantReason, GrantRejection, GrantRequest, GrantWrap, MAX_WRAP_BYTES, MAX_WRAPS},
};
use proptest::prelude::*;

use crate::given::{Standing, caller, devices, graph, key};

type Target = (u64, DeviceRef);

fn wrap((epoch, device): &Target, content: u8) -> GrantWrap {
    GrantWrap {
        epoch: *epoch,
        member_id: device.member_id.clone(),
        device_id: device.device_id.clone(),
        wrap: Sealed(vec![content]),
    }
}

fn request(wraps: Vec<GrantWrap>) -> Grant {
    Grant {
        key: key(),
        by: caller().to_ref(),
        members: Vec::new(),
        wraps,
        now: EPOCH,
    }
}

#[test]
fn one_device_may_be_given_many_epochs_but_each_once() {
    let check = |wraps: &[(u64, &str)]| {
        let wraps = wraps
            .iter()
            .map(|(epoch, device)| wrap(&(*epoch, device_ref("sam", device)), 1));
        let request = GrantRequest {
            wraps: wraps.collect(),
        };
        match check_grant(&request) {
            Ok(()) => None,
            Err(Rejection::InvalidRequest { field, .. }) => field,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(check(&[(1, "a"), (2, "a"), (1, "b")]), None);
    assert_eq!(
        check(&[(1, "a"), (2, "a"), (1, "a")]).as_deref(),
        Some("wraps[2]")
    );
}

#[test]
fn lengths_and_numbers_are_bounded() {
    let sized = |bytes: usize| {
        let wrap = GrantWrap {
            wrap: Sealed(vec![1; bytes]),
            ..wrap(&(1, device_ref("sam", "a")), 1)
        };
        check_grant(&GrantRequest { wraps: vec![wrap] }).is_ok()
    };
    assert!(sized(1) && sized(MAX_WRAP_BYTES));
    assert!(!sized(0) && !sized(MAX_WRAP_BYTES + 1));
    let many = |count: u64| {
        let wraps = (1..=count).map(|epoch| wrap(&(epoch, device_ref("sam", "a")), 1));
        let request = GrantRequest {
            wraps: wraps.collect(),
        };
        check_grant(&request).is_ok()
    };
    assert!(many(MAX_WRAPS as u64) && !many(MAX_WRAPS as u64 + 1));
}

fn targets() -> impl Strategy<Value = Target> {
    (0..6_u64, devices())
}

proptest! {
    #[test]
    fn the_first_reason_is_told_and_no_wrap_is_overwritten(
        current in 1..5_u64,
        roster in prop::collection::btree_set(devices(), 0..12),
        held in prop::collection::btree_set(0..6_u64, 0..6),
        existing in prop::collection::btree_map(targets(), prop::option::of(0..2_u8), 0..20),
        sent in prop::collection::btree_map(targets(), 0..2_u8, 0..20)
            .prop_map(|sent| sent.into_iter().collect::<Vec<_>>())
            .prop_shuffle(),
    ) {
        let existing: BTreeMap<Target, Option<Sealed>> = existing
            .into_iter()
            .map(|(target, content)| (target, content.map(|byte| Sealed(vec![byte]))))
            .collect();
        let request = request(sent.iter().map(|(target, content)| wrap(target, *content)).collect());
        let graph = graph(current, 9);
        let row = Standing::Active.row(&caller());
        let decision = grant(&request, GrantView {
            caller: row.as_ref(),
            graph: Some(&graph),
            roster: &roster,
            held: &held,
            existing: &existing,
        }).unwrap();

        // What each wrap comes to, from the words of the protocol: `None` is in place.
        let verdicts: Vec<Option<GrantReason>> = sent.iter().map(|(target, content)| {
            let (epoch, device) = target;
            let faults = [
                (!roster.contains(device), GrantReason::NotOnRoster),
                (!(1..=current).contains(epoch), GrantReason::UnknownEpoch),
                (!held.contains(epoch), GrantReason::NotHolder),
                (
                    existing.get(target).is_some_and(|there| *there != Some(Sealed(vec![*content]))),
                    GrantReason::WrapExists,
                ),
            ];
            faults.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
        }).collect();

        let rejected: Vec<GrantRejection> = sent.iter().zip(&verdicts)
            .filter_map(|((target, _), verdict)| verdict.map(|reason| GrantRejection {
                epoch: target.0,
                member_id: target.1.member_id.clone(),
                device_id: target.1.device_id.clone(),
                reason,
            }))
            .collect();
        let in_place = || sent.iter().zip(&verdicts).enumerate()
            .filter(|(_, (_, verdict))| verdict.is_none())
            .map(|(at, ((target, _), _))| (at, target));
        let new: Vec<_> = in_place().filter(|(_, target)| !existing.contains_key(target)).collect();
        let devices: BTreeSet<_> = in_place().map(|(_, target)| &target.1).collect();
        let poke: BTreeSet<_> = new.iter().map(|(_, target)| target.1.member_id.clone()).collect();

        prop_assert_eq!(&decision.outcome.rejected, &rejected);
        prop_assert_eq!(decision.outcome.granted, in_place().count() as u64);
        prop_assert_eq!(decision.outcome.devices, devices.len() as u64);
        prop_assert_eq!(decision.outcome.epoch, current);
        prop_assert_eq!(&decision.outcome.poke, &poke.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(&decision.insert, &new.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    }
}

#[test]
fn caller_and_graph_are_asked_first() {
    let refusal = |standing: Standing, epoch: Option<u64>| {
        let (row, graph) = (standing.row(&caller()), epoch.map(|epoch| graph(epoch, 0)));
        grant(
            &request(Vec::new()),
            GrantView {
                caller: row.as_ref(),
                graph: graph.as_ref(),
                roster: &BTreeSet::new(),
                held: &BTreeSet::new(),
                existing: &BTreeMap::new(),
            },
        )
        .map(|decision| decision.outcome.granted)
    };
    assert_eq!(
        refusal(Standing::Unregistered, None),
        Err(Rejection::DeviceUnregistered)
    );
    assert_eq!(
        refusal(Standing::Revoked, None),
        Err(Rejection::DeviceRevoked)
    );
    assert_eq!(
        refusal(Standing::Active, None),
        Err(Rejection::GraphUnkeyed)
    );
    assert_eq!(
        refusal(Standing::Active, Some(0)),
        Err(Rejection::GraphUnkeyed)
    );
    assert_eq!(refusal(Standing::Active, Some(1)), Ok(0));
}

#[test]
fn a_member_whose_wraps_were_all_there_is_not_poked() {
    let (old, new) = (device_ref("sam", "a"), device_ref("alex", "b"));
    let sent = [(1, old.clone()), (1, new.clone())].map(|target| wrap(&target, 1));
    let (graph, row) = (graph(1, 0), Standing::Active.row(&caller()));
    let decision = grant(
        &request(sent.to_vec()),
        GrantView {
            caller: row.as_ref(),
            graph: Some(&graph),
            roster: &BTreeSet::from([old.clone(), new]),
            held: &BTreeSet::from([1]),
            existing: &BTreeMap::from([((1, old), Some(Sealed(vec![1])))]),
        },
    )
    .unwrap();
    assert_eq!(decision.outcome.granted, 2);
    assert_eq!(decision.outcome.devices, 2);
    assert_eq!(decision.outcome.poke, [member("alex")]);
}
