//! One graph, pushed to through every replica at once.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use argala_wire::StorageKey;
use serde_json::Value;

use super::{REPLICAS, follow, keyed, seqs};
use crate::{device::TestDevice, http::Target};

const PUSHERS: usize = 24;

fn push(device: &TestDevice, target: &Target, id: &str) -> crate::http::Answer {
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    device.push(target, "d:sam", &[device.record(&graph, id, id.as_bytes())])
}

/// Invariant 1, on several replicas.
#[test]
fn nobody_who_follows_a_hot_graph_misses_a_record() {
    const EACH: usize = 25;
    let (cluster, sam) = keyed(&[
        "--set",
        "rate_limits.pull={ per_minute = 1000000, burst = 1000000 }",
    ]);
    let through = cluster.public();
    let targets = cluster.targets();
    let all = PUSHERS * EACH;
    thread::scope(|scope| {
        let followers: Vec<_> = targets
            .iter()
            .map(|target| {
                let sam = &sam;
                scope.spawn(move || follow(sam, target, "d:sam", |seen| seen.len() >= all))
            })
            .collect();
        for pusher in 0..PUSHERS {
            let (through, sam) = (&through, &sam);
            scope.spawn(move || {
                for number in 0..EACH {
                    let pushed = push(sam, through, &format!("{pusher}-{number}")).ok();
                    assert_eq!(pushed["accepted"], 1);
                }
            });
        }
        for follower in followers {
            let seen = follower.join().unwrap();
            let expected: Vec<u64> = (1..=all as u64).collect();
            assert_eq!(seqs(&seen), expected);
            let ids: BTreeSet<_> = seen.iter().map(|record| record["id"].to_string()).collect();
            assert_eq!(ids.len(), all);
        }
    });
    cluster.stop();
}

/// Invariant 6: whoever pushes, a quota is not exceeded by one record, and what is counted is what
/// is there.
#[test]
fn a_quota_is_not_exceeded_by_any_number_of_replicas() {
    const QUOTA: usize = 97;
    let quota = format!("quotas.max_records_per_graph={QUOTA}");
    let (cluster, sam) = keyed(&["--set", &quota]);
    let targets = cluster.targets();
    let (accepted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for pusher in 0..PUSHERS {
            let (targets, sam, accepted, refused) = (&targets, &sam, &accepted, &refused);
            scope.spawn(move || {
                for number in 0.. {
                    let replica = &targets[(pusher + number) % REPLICAS];
                    let answer = push(sam, replica, &format!("{pusher}-{number}"));
                    if answer.status == 200 && answer.json()["accepted"] == 1 {
                        accepted.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let text = String::from_utf8_lossy(&answer.body).into_owned();
                        assert!(text.contains("quota"), "{text}");
                        refused.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
    assert_eq!(accepted.into_inner(), QUOTA);
    assert_eq!(refused.into_inner(), PUSHERS);
    let state: Value = cluster.at(0).get("/graphs/d:sam", &sam.headers()).ok();
    assert_eq!(state["records"], QUOTA);
    let counters = "select concat_ws(' ', records, ciphertext_bytes, head) from graphs";
    let sums = "select concat_ws(' ', count(*), sum(length(ciphertext)), max(seq)) from records";
    assert_eq!(cluster.stored(counters), cluster.stored(sums));
    cluster.stop();
}
