//! Cases that are written out, since few random ones come to them.

use argala_testkit::conformance::{Fresh, relay::RelayPorts};

use super::{
    SMALL, call,
    drive::Setting,
    opening,
    ops::{Change, Gone, Manner, Nearby, Op, Roster, Size, What, Where, Who},
    run,
};

/// The group that the opening gives a key.
const GROUP: Where = Where { any: true, n: 0 };

/// In JSON, with nothing wrong.
const PLAIN: Manner = Manner {
    form: call::Form::Json,
    accept: call::Form::Json,
    slip: call::Slip::None,
    spelling: 0,
};

/// A step in which device `n` of all there could be asks something.
pub(super) fn ask(n: u8, what: What) -> Op {
    Op::Ask(Who { any: true, n }, what, PLAIN)
}

pub(super) fn register(n: u8) -> Op {
    let what = What::Register {
        other_keys: false,
        recovery: false,
        label: 0,
        fault: 0,
    };
    ask(n, what)
}

pub(super) fn rotate(n: u8, graph: u8) -> Op {
    let what = What::Rotate {
        at: Where {
            any: true,
            n: graph,
        },
        epoch: Nearby::Next,
        roster: Roster::Whole,
        content: 0,
    };
    ask(n, what)
}

/// What the opening and these steps were answered with.
fn answered<F>(fresh: impl Fn() -> F, steps: impl IntoIterator<Item = Op>) -> impl Fn(&str) -> u64
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    let setting = Setting {
        settings: SMALL,
        sizes: None,
    };
    let steps: Vec<_> = opening().into_iter().chain(steps).collect();
    let tally = run(fresh, setting, &steps).unwrap_or_else(|fault| panic!("{fault}"));
    move |kind| tally.get(kind).copied().unwrap_or_default()
}

/// Of two faults of the same rank any may be told: an id in the path that is none, and an `Accept`
/// that nothing meets.
pub(super) fn either_fault_of_a_revocation<F>(fresh: impl Fn() -> F)
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    let manner = Manner {
        slip: call::Slip::Accept,
        ..PLAIN
    };
    let who = Who { any: false, n: 0 };
    let revoke = Op::Ask(who, What::Revoke { n: 4, any: true }, manner);
    let answered = answered(fresh, [revoke]);
    let refused = ["Revoke invalid_request", "Revoke not_acceptable"];
    assert!(refused.iter().any(|kind| answered(kind) > 0));
}

/// Holds that a grant of more wraps than there may be is refused as one, whole.
pub(super) fn a_grant_of_too_many<F>(fresh: impl Fn() -> F)
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    let manner = Manner {
        form: call::Form::Cbor,
        ..PLAIN
    };
    let (who, at) = (Who { any: false, n: 0 }, Where { any: false, n: 0 });
    let grant = What::Grant(at, Vec::new(), Size::TooMany);
    let answered = answered(fresh, [Op::Ask(who, grant, manner)]);
    assert!(answered("Grant invalid_request") > 0);
}

/// A member who was erased comes back, and puts a blob, or fetches one that is to be delivered, where
/// no device of theirs has a key; and is erased again.
pub(super) fn erased_without_a_key<F>(fresh: impl Fn() -> F)
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    // Every first device, by their members.
    let (alex, kim) = (0, 1);
    let erase = |n| Op::Erase(Gone::Member { n, leaves: true });
    let put = |policy| What::PutBlob {
        at: GROUP,
        blob: 0,
        content: 0,
        policy,
        ttl: 0,
        digest: 0,
        length: 0,
    };
    let get = || What::GetBlob {
        at: GROUP,
        blob: 0,
        head: false,
        range: 0,
        known: 0,
    };
    for traces in [
        vec![ask(kim, put(1))],
        vec![ask(alex, put(3)), ask(kim, get())],
    ] {
        let mut steps = vec![
            erase(kim),
            // The epoch in force names them no longer.
            rotate(alex, 0),
            erase(kim),
            Op::Directory(Change::Member {
                n: kim,
                to: Some(true),
            }),
            Op::Directory(Change::Join { group: 0, n: kim }),
            register(kim),
        ];
        steps.extend(traces);
        // Who has left blobs and had no key comes first of all.
        steps.push(erase(0));
        let answered = answered(&fresh, steps);
        assert_eq!(answered("Erase member without a key"), 1);
    }
}
