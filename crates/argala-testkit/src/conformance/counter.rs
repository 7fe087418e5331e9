//! What every [`CounterStore`] does.

use std::{sync::Arc, time::Duration};

use argala_core::ports::CounterStore;

use super::Fresh;
use crate::eventually;

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<dyn CounterStore>`, whose time is the
/// system's.
#[macro_export]
macro_rules! counter_conformance {
    ($fresh:path) => {
        $crate::stamp_cases! { $fresh, counter:
            a_counter_counts_from_nothing,
            counters_do_not_share,
            whatever_races_is_counted,
            a_counter_is_forgotten,
            a_counter_lives_as_long_as_it_was_told_to,
        }
    };
}

const LONG: Duration = Duration::from_secs(600);

async fn add(fresh: &Fresh<dyn CounterStore>, turn: usize, key: &str, by: u64) -> u64 {
    let counted = fresh.replica(turn).increment(key, by, LONG).await;
    counted.expect("counted")
}

async fn read(fresh: &Fresh<dyn CounterStore>, turn: usize, key: &str) -> u64 {
    fresh.replica(turn).read(key).await.expect("read")
}

/// What is not there is 0; each addition gives the sum, and the next replica reads it.
pub async fn a_counter_counts_from_nothing(fresh: Fresh<dyn CounterStore>) {
    assert_eq!(read(&fresh, 0, "k").await, 0);
    assert_eq!(add(&fresh, 1, "k", 1).await, 1);
    assert_eq!(add(&fresh, 2, "k", 41).await, 42);
    assert_eq!(read(&fresh, 3, "k").await, 42);
    assert_eq!(add(&fresh, 0, "large", 1 << 40).await, 1 << 40);
}

/// Keys are told apart byte for byte.
pub async fn counters_do_not_share(fresh: Fresh<dyn CounterStore>) {
    let long = "x".repeat(300);
    let keys = [
        "k", "K", "k:", "k:1", "{k}", "*", "é", "e\u{301}", "a b", &long,
    ];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(
            add(&fresh, at, key, at as u64 + 1).await,
            at as u64 + 1,
            "{key}"
        );
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(read(&fresh, at + 1, key).await, at as u64 + 1, "{key}");
    }
}

/// No addition is lost, and no two get the same answer.
pub async fn whatever_races_is_counted(fresh: Fresh<dyn CounterStore>) {
    let tasks: Vec<_> = (0..8)
        .map(|turn| {
            let counters = Arc::clone(fresh.replica(turn));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for _ in 0..25 {
                    answers.push(counters.increment("k", 1, LONG).await.expect("counted"));
                }
                answers
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await.expect("no panic"));
    }
    answers.sort_unstable();
    assert_eq!(answers, (1..=200).collect::<Vec<u64>>());
}

/// However often it was added to, a counter is gone in the end, and counts from 0 again.
pub async fn a_counter_is_forgotten(fresh: Fresh<dyn CounterStore>) {
    let counters = fresh.replica(0);
    for _ in 0..3 {
        let added = counters.increment("k", 5, Duration::from_millis(60)).await;
        added.expect("counted");
    }
    eventually("the counter is gone", || async {
        (read(&fresh, 1, "k").await == 0).then_some(())
    })
    .await;
    assert_eq!(add(&fresh, 1, "k", 2).await, 2);
}

/// It is not gone before its time.
pub async fn a_counter_lives_as_long_as_it_was_told_to(fresh: Fresh<dyn CounterStore>) {
    let counters = fresh.replica(0);
    let brief = Duration::from_millis(60);
    counters
        .increment("brief", 1, brief)
        .await
        .expect("counted");
    assert_eq!(add(&fresh, 0, "k", 7).await, 7);
    eventually("the brief one is gone", || async {
        (read(&fresh, 1, "brief").await == 0).then_some(())
    })
    .await;
    assert_eq!(read(&fresh, 1, "k").await, 7);
}
