//! What every [`RateLimiter`] does: a token bucket for each member, exactly (protocol, section 6).
//!
//! The cases take a function that makes a limiter of a rate on a clock, since each needs rates of
//! its own.

use std::{future::Future, time::Duration};

use argala_core::ports::{Clock, RateLimiter, Verdict};
use argala_wire::{MemberId, limits::Rate};

use super::Fresh;
use crate::{TestClock, TestRandom, member};

/// Stamps the suite; `$fresh` is an `async fn(Rate, TestClock) -> Fresh<dyn RateLimiter>`.
#[macro_export]
macro_rules! limiter_conformance {
    ($fresh:path) => {
        $crate::stamp_limiter_cases! { $fresh,
            a_burst_and_then_the_rate,
            what_is_denied_is_not_counted,
            members_do_not_share,
            rest_fills_the_bucket_and_no_more,
            random_requests_follow_the_model,
            odd_rates_stay_within_their_bounds,
            what_is_told_to_wait_is_enough_and_no_more,
            a_clock_set_back_blocks_nobody_for_long,
            the_replicas_count_together,
        }
    };
}

/// Makes a test of each case.
#[doc(hidden)]
#[macro_export]
macro_rules! stamp_limiter_cases {
    ($fresh:path, $($case:ident),+ $(,)?) => {$(
        #[test]
        fn $case() {
            $crate::conformance::limiter::run(|| $crate::conformance::limiter::$case(&$fresh));
        }
    )+};
}

/// Runs one case.
///
/// # Panics
/// Where it fails.
pub fn run<C: Future<Output = ()>>(case: impl FnOnce() -> C) {
    super::run(
        || async { Fresh::new(std::sync::Arc::new(()), ()) },
        |_: Fresh<()>| case(),
    );
}

/// A limiter on a clock that the case moves.
struct Bench {
    fresh: Fresh<dyn RateLimiter>,
    clock: TestClock,
    sam: MemberId,
}

impl Bench {
    async fn new<M, F>(make: &M, per_minute: u32, burst: u32) -> Self
    where
        M: Fn(Rate, TestClock) -> F,
        F: Future<Output = Fresh<dyn RateLimiter>>,
    {
        let clock = TestClock::new();
        Self {
            fresh: make(Rate { per_minute, burst }, clock.clone()).await,
            clock,
            sam: member("sam"),
        }
    }

    async fn check(&self) -> Verdict {
        self.fresh.replica(0).check(&self.sam).await
    }

    async fn allowed(&self, requests: usize) -> usize {
        let mut allowed = 0;
        for _ in 0..requests {
            allowed += usize::from(self.check().await == Verdict::Allowed);
        }
        allowed
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    async fn wait(&self) -> Option<Duration> {
        match self.check().await {
            Verdict::Allowed => None,
            Verdict::Denied { retry_after } => Some(retry_after),
        }
    }
}

/// A bucket of tokens in whole numbers: one request costs 60,000 parts, and `per_minute` parts
/// come each millisecond, so that nothing is ever rounded.
struct Model {
    rate: Rate,
    parts: u64,
    at: i64,
}

const COST: u64 = 60_000;

impl Model {
    fn new(rate: Rate, clock: &TestClock) -> Self {
        Self {
            rate,
            parts: u64::from(rate.burst) * COST,
            at: clock.now().as_millis(),
        }
    }

    /// The milliseconds to wait, rounded up; 0 where the request is allowed and was counted.
    fn check(&mut self, clock: &TestClock) -> u64 {
        let now = clock.now().as_millis();
        let passed = u64::try_from(now - self.at).expect("the clock moves on");
        let per_milli = u64::from(self.rate.per_minute);
        let full = u64::from(self.rate.burst) * COST;
        self.parts = full.min(self.parts + passed * per_milli);
        self.at = now;
        if self.parts >= COST {
            self.parts -= COST;
            0
        } else {
            (COST - self.parts).div_ceil(per_milli)
        }
    }
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).expect("not for ages")
}

/// A rested member may send the burst at once, and then one at a time.
pub async fn a_burst_and_then_the_rate<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 600, 5).await;
    assert_eq!(bench.allowed(20).await, 5);
    assert_eq!(bench.wait().await, Some(Duration::from_millis(100)));
    bench.advance(99);
    assert_eq!(bench.allowed(3).await, 0);
    bench.advance(1);
    assert_eq!(bench.allowed(3).await, 1);
    bench.advance(250);
    assert_eq!(bench.allowed(5).await, 2);
    assert_eq!(bench.wait().await, Some(Duration::from_millis(50)));
}

/// However often a member is denied, they are allowed again as soon as without.
pub async fn what_is_denied_is_not_counted<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 60, 1).await;
    assert_eq!(bench.allowed(1).await, 1);
    for _ in 0..10 {
        assert_eq!(bench.allowed(50).await, 0);
        bench.advance(100);
    }
    assert_eq!(bench.wait().await, None, "a second has passed");
}

/// One member's requests cost no other's, whatever they are called.
pub async fn members_do_not_share<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 60, 2).await;
    let limiter = bench.fresh.replica(0);
    let long = "x".repeat(128);
    for name in [
        "sam", "Sam", "auth0|42", "user:7", "user", "7", "50%", "50%25", "🦀", "é", "e\u{301}",
        "a b", "{sam}", "*", &long,
    ] {
        let name = member(name);
        for wanted in [true, true, false] {
            let allowed = limiter.check(&name).await == Verdict::Allowed;
            assert_eq!(allowed, wanted, "{name}");
        }
    }
}

/// A long rest is worth the burst, not more.
pub async fn rest_fills_the_bucket_and_no_more<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 600, 7).await;
    for rest in [0, 700, 701, 60_000, 86_400_000] {
        bench.advance(rest);
        assert_eq!(bench.allowed(30).await, 7, "after {rest} ms");
        // Empty for sure, whatever was left.
        assert!(bench.wait().await.is_some());
        bench.advance(700);
    }
}

/// At rates whose requests are whole milliseconds apart, every verdict is the model's.
pub async fn random_requests_follow_the_model<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let rates = [
        (1, 1),
        (60, 3),
        (120, 240),
        (600, 5),
        (6_000, 20),
        (60_000, 50),
    ];
    for (seed, (per_minute, burst)) in rates.into_iter().enumerate() {
        let bench = Bench::new(make, per_minute, burst).await;
        let mut model = Model::new(Rate { per_minute, burst }, &bench.clock);
        let random = TestRandom::new(seed as u64);
        let apart = 60_000 / u64::from(per_minute);
        for at in 0..600 {
            if random.one_in(3) {
                bench.advance(random.below(apart * 4));
            }
            let wanted = model.check(&bench.clock);
            let got = bench.wait().await.map_or(0, millis);
            assert_eq!(got, wanted, "request {at} at {per_minute}/min");
        }
    }
}

/// At any rate, no span of time admits more than the burst and what the span is worth, and a
/// member who always waits as told is admitted at the rate.
pub async fn odd_rates_stay_within_their_bounds<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    for (per_minute, burst) in [(7, 3), (11, 1), (601, 13), (7_919, 17)] {
        let bench = Bench::new(make, per_minute, burst).await;
        let random = TestRandom::new(u64::from(per_minute));
        let start = bench.clock.now();
        let mut allowed: u64 = 0;
        for _ in 0..600 {
            match bench.wait().await {
                None => allowed += 1,
                Some(wait) if random.one_in(2) => bench.advance(millis(wait)),
                Some(_) => bench.advance(random.below(5)),
            }
            let passed = millis(bench.clock.now().since(start));
            let worth = u64::from(burst) * COST + passed * u64::from(per_minute);
            assert!(allowed * COST <= worth + COST / 100, "{per_minute}/min");
        }
        // Half of the waits are to the point, so the allowance is nearly used up.
        let passed = millis(bench.clock.now().since(start));
        let worth = (u64::from(burst) * COST + passed * u64::from(per_minute)) / COST;
        assert!(allowed + 2 + worth / 20 >= worth, "{allowed} of {worth}");
    }
}

/// Who waits as long as they are told is allowed; who waits a little less is not.
pub async fn what_is_told_to_wait_is_enough_and_no_more<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    for (per_minute, burst) in [(1, 2), (7, 3), (59, 2), (601, 13)] {
        let bench = Bench::new(make, per_minute, burst).await;
        for _ in 0..20 {
            while let Verdict::Allowed = bench.check().await {}
            let wait = millis(bench.wait().await.expect("just denied"));
            assert!(wait <= 60_000 / u64::from(per_minute) + 1, "{wait} ms");
            if wait > 2 {
                bench.advance(wait - 2);
                assert!(bench.wait().await.is_some(), "2 ms early, {per_minute}/min");
                bench.advance(2);
            } else {
                bench.advance(wait);
            }
            assert_eq!(bench.wait().await, None, "in time, {per_minute}/min");
        }
    }
}

/// Whoever is denied while the clock jumps back waits no longer than an empty bucket takes for
/// one request.
pub async fn a_clock_set_back_blocks_nobody_for_long<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 600, 3).await;
    let start = bench.clock.now();
    bench.advance(3_600_000);
    assert_eq!(bench.allowed(9).await, 3);
    bench.clock.set(start);
    if let Some(wait) = bench.wait().await {
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        bench.advance(100);
        assert_eq!(bench.wait().await, None);
    }
}

/// Several replicas allow what one would.
pub async fn the_replicas_count_together<M, F>(make: &M)
where
    M: Fn(Rate, TestClock) -> F,
    F: Future<Output = Fresh<dyn RateLimiter>>,
{
    let bench = Bench::new(make, 60, 40).await;
    let tasks: Vec<_> = (0..8)
        .map(|turn| {
            let limiter = std::sync::Arc::clone(bench.fresh.replica(turn));
            let sam = bench.sam.clone();
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..20 {
                    allowed += usize::from(limiter.check(&sam).await == Verdict::Allowed);
                }
                allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.expect("no panic");
    }
    assert_eq!(allowed, 40);
}
