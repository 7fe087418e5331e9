//! The whole protocol as a plain model in memory, and random steps through both it and the router.
//!
//! The model is written from the protocol and shares nothing with the rules that it is held
//! against: it knows JSON values, texts and numbers. Of the relay's crates it uses the bytes that
//! a client signs, and what a host hands in and is told: ports, clock, directory, events, pokes.
//!
//! - `ops`: what may happen, as numbers that shrink.
//! - `names`: who and what there is.
//! - `script`: the request that a step stands for, by what there is when its turn comes.
//! - `state`, and a file for each group of routes: the model. It changes as the relay must, and
//!   tells every answer that the protocol allows: status, headers, body, events and pokes.
//! - `erase`: the model of what an operator erases, and of what a sweep forgets of whole graphs.
//! - `drive`: sends the request, and finds the answer among those.
//! - `operate`: what happens beside requests.
//!
//! Where the protocol leaves a choice, each choice is an answer of its own: which of two faults of
//! a body is told, how far a page goes past records that are held back, how old the directory's
//! part of a rotation flag is, when a sweep gets to a blob that was replaced.
//!
//! `ARGALA_MODEL_CASES` is how many cases each test runs, but for those whose cases move megabytes;
//! without it there are as many as fit into a minute. A case that failed is written to
//! `regressions.txt` and comes first from then on, until the steps are made up otherwise: a seed
//! means another case then. What is worth keeping becomes a test by name.

mod admit;
mod answer;
mod blobs;
mod call;
mod devices;
mod drive;
mod erase;
mod graphs;
mod keys;
mod named;
mod names;
mod operate;
mod ops;
mod postgres;
mod pull;
mod push;
mod script;
mod sqlite;
mod state;
mod uploads;

use std::collections::BTreeMap;

use argala_testkit::conformance::{Fresh, relay::RelayPorts};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{FileFailurePersistence, TestCaseError, TestRunner},
};

use drive::{Case, Setting};
use ops::{Op, What, Where};
use state::{Rates, Settings};

const REGRESSIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/model/regressions.txt"
);

/// Allowances that no case uses up.
const MANY: Rates = Rates {
    push: (60_000, 50_001),
    pull: (30_000, 50_002),
    blobs: (20_000, 50_003),
    keys: (15_000, 50_004),
};

/// Ceilings that a few requests meet.
const SMALL: Settings = Settings {
    max_records: 3,
    max_ciphertext: 150,
    max_blob: 64,
    max_blobs: 100,
    max_devices: 2,
    max_push: 1_250,
    max_record: 64,
    max_batch: 5,
    signatures_required: true,
    lists_groups: false,
    rates: MANY,
};

/// Ceilings that no case meets.
const ROOMY: Settings = Settings {
    max_records: 1_000,
    max_ciphertext: 64 * 1024 * 1024,
    max_blob: 1_000,
    max_blobs: 10_000,
    max_devices: 10,
    max_push: 32 * 1024 * 1024,
    max_record: 4 * 1024 * 1024,
    max_batch: 1_000,
    signatures_required: false,
    lists_groups: true,
    rates: MANY,
};

/// Allowances that a few requests use up.
const FEW_REQUESTS: Settings = Settings {
    rates: Rates {
        push: (5, 6),
        pull: (6, 8),
        blobs: (4, 5),
        keys: (8, 9),
    },
    max_devices: 3,
    ..SMALL
};

/// The cases of one test: `ARGALA_MODEL_CASES`, or `usual`.
fn cases(usual: u32) -> u32 {
    let cases = std::env::var("ARGALA_MODEL_CASES");
    cases.map_or(usual, |cases| cases.parse().expect("a number of cases"))
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    }
}

/// Devices and graphs to begin with: without them most of a short case would be refused.
fn opening() -> Vec<Op> {
    use named::{ask, register, rotate};

    let push = |n| {
        let item = |content| ops::Item {
            epoch: ops::Nearby::Current,
            content,
            deleted: false,
            sig: 0,
            expect: 0,
            same: false,
            name: None,
        };
        let pushing = ops::Pushing {
            start: 0,
            records: vec![item(0), item(1)],
            if_head: 0,
            atomic: false,
            key: 0,
            twice: false,
        };
        ask(n, What::Push(Where { any: true, n: 0 }, pushing))
    };
    vec![
        register(0),
        register(1),
        register(2),
        register(3),
        // The group, two pairs' graphs and an own one.
        rotate(0, 0),
        rotate(0, 3),
        rotate(1, 4),
        rotate(0, 2),
        push(0),
        // One that comes later has no key yet, and must not read what was before.
        register(4),
        register(5),
    ]
}

/// Runs one case on a runtime of its own, whose time stands still but for what the case lets
/// pass: so no timeout of the relay's runs out because a thread was slow.
fn run<F>(
    fresh: impl Fn() -> F,
    setting: Setting,
    ops: &[Op],
) -> Result<BTreeMap<String, u64>, TestCaseError>
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    // While a blocking task runs, paused time does not run ahead by itself.
    runtime.spawn_blocking(move || is_over.recv().is_err());
    let outcome: Result<_, String> = runtime.block_on(async {
        let mut case = Case::new(fresh().await, setting);
        for (at, op) in ops.iter().enumerate() {
            let step = case.step(op).await;
            step.map_err(|fault| format!("step {at}, {op:?}: {fault}"))?;
        }
        let swept = case.sweep().await;
        swept.map_err(|fault| format!("after the last step: {fault}"))?;
        let tally = std::mem::take(&mut case.tally);
        let end = case.end().await;
        end.map_err(|fault| format!("at the end: {fault}"))?;
        Ok(tally)
    });
    drop(over);
    outcome.map_err(TestCaseError::fail)
}

/// Answers, and parts of answers, that a few cases must have met.
const KINDS: &[&str] = &[
    "Register 201",
    "Register 200",
    "Register device_key_mismatch",
    "Register quota_exceeded devices",
    "Register device_revoked",
    "Register member_inactive",
    "Devices more",
    "Devices cursor_invalid malformed",
    "Revoke graphsFlagged",
    "Revoke device_not_found",
    "Graphs more",
    "Graphs cursor_invalid foreign",
    "Graph rotationReasons device_revoked",
    "Graph rotationReasons member_inactive",
    "Graph rotationReasons member_removed",
    "GraphDevices more",
    "Wraps more",
    "Rotate 200",
    "Rotate epoch_conflict",
    "Rotate rotation_incomplete",
    "Rotate graph_not_found",
    "rate_limited",
    "Grant granted",
    "Grant rejected not_holder",
    "Grant rejected not_on_roster",
    "Grant rejected unknown_epoch",
    "Grant rejected wrap_exists",
    "Push device_unregistered",
    "Push graph_unkeyed",
    "Push head_moved",
    "Push idempotency_conflict",
    "Push push_rejected",
    "Push results conflict",
    "Push results not_holder",
    "Push results quota_bytes",
    "Push results quota_records",
    "Push results record_too_large",
    "Push results signature_invalid",
    "Push results signature_missing",
    "Push results stale_epoch",
    "Push results unknown_epoch",
    "unavailable",
    "unauthenticated",
    "not_acceptable",
    "unsupported_media_type",
    "Push body_too_large",
    "Pull 304",
    "Pull cursor_invalid foreign",
    "Pull cursor_invalid malformed",
    "Pull filtered",
    "Pull more",
    "Pull rotationOwed",
    "Pull cursor_invalid ahead",
    "Sweep expired",
    "Sweep delivered",
    "Sweep requested",
    "Sweep a graph",
    "Sweep tombstones",
    "Erase requested",
    "Erase graph true",
    "Erase cut off",
    "Erase member whole",
    "Erase member but for a name",
    "PutBlob 200",
    "PutBlob 201",
    "PutBlob blob_exists",
    "PutBlob blob_too_large",
    "PutBlob digest_mismatch",
    "PutBlob length_required",
    "PutBlob quota_exceeded blobBytesPerGraph",
    "GetBlob 200",
    "GetBlob 206",
    "GetBlob 304",
    "GetBlob 416",
    "HeadBlob 200",
    "DeleteBlob 204",
    "DeleteBlob blob_not_found",
    "Limits 200",
];

/// Holds that what cases meet is what the protocol has: a case whose steps are all refused for
/// one and the same thing shows little.
fn meets<F>(fresh: impl Fn() -> F, cases: &[(u32, Setting)])
where
    F: Future<Output = Fresh<RelayPorts>>,
{
    let mut met = BTreeMap::new();
    for (cases, setting) in cases {
        let mut runner = TestRunner::deterministic();
        for _ in 0..*cases {
            let steps = ops::ops(60).new_tree(&mut runner).expect("steps").current();
            let all: Vec<_> = opening().into_iter().chain(steps).collect();
            let tally = run(&fresh, *setting, &all).unwrap_or_else(|fault| panic!("{fault}"));
            for (kind, times) in tally {
                *met.entry(kind).or_insert(0) += times;
            }
        }
    }
    println!("{met:#?}");
    let missed: Vec<_> = KINDS
        .iter()
        .filter(|kind| !met.contains_key(**kind))
        .collect();
    assert!(missed.is_empty(), "no case met {missed:?}");
}

/// Stamps the tests; `$fresh` is the name of an `async fn() -> Fresh<RelayPorts>`.
macro_rules! model_tests {
    ($fresh:ident, $($name:ident: $cases:expr, $steps:literal, $setting:expr;)+) => {
        #[test]
        fn a_revocation_with_two_faults_is_told_either() {
            super::named::either_fault_of_a_revocation($fresh);
        }

        #[test]
        fn too_many_wraps_are_refused() {
            super::named::a_grant_of_too_many($fresh);
        }

        #[test]
        fn a_member_without_a_key_is_erased() {
            super::named::erased_without_a_key($fresh);
        }

        $(
        #[test]
        fn $name() {
            use proptest::prelude::*;

            let steps = (proptest::bool::weighted(0.9), super::ops::ops($steps));
            proptest!(super::config($cases), |(steps in steps)| {
                let (opened, rest) = steps;
                let mut all = if opened { super::opening() } else { Vec::new() };
                all.extend(rest);
                super::run($fresh, $setting, &all)?;
            });
        }
        )+
    };
}
use model_tests;
