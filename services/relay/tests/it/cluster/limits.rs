//! Limits are the cluster's, not a replica's.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::{Cluster, REPLICAS, key};

/// Invariant 9.
#[test]
fn a_member_may_ask_of_three_replicas_what_they_may_ask_of_one() {
    const BURST: usize = 600;
    const ASKERS: usize = 6;
    // So slow that what comes back while the test runs is within one in a hundred.
    let limit = format!("rate_limits.pull={{ per_minute = 2, burst = {BURST} }}");
    let cluster = Cluster::start(&["--set", &limit]);
    let sam = key(&cluster);
    let (allowed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let targets = cluster.targets();
    thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (targets, sam, allowed, refused) = (&targets, &sam, &allowed, &refused);
            scope.spawn(move || {
                for number in 0..BURST / ASKERS + BURST / 10 {
                    let replica = &targets[(asker + number) % REPLICAS];
                    let answer = replica.get("/graphs/d:sam", &sam.headers());
                    match answer.status {
                        200 => allowed.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
    });
    let (allowed, refused) = (allowed.into_inner(), refused.into_inner());
    println!("allowed {allowed} of {BURST}, refused {refused}");
    assert!(allowed.abs_diff(BURST) <= BURST / 100, "{allowed}");
    assert!(refused > 0);
    cluster.stop();
}
