//! Limits over a counter that a host brings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use argala_core::{
    StoreError, StoreResult,
    memory::MemoryCounters,
    ports::{Clock, CounterStore, RateLimiter, Verdict},
    shared::SharedRateLimiter,
};
use argala_testkit::{TestClock, TestRandom, member};
use argala_wire::limits::{Bucket, Rate};
use async_trait::async_trait;

fn limiter(counters: &Arc<dyn CounterStore>, rate: Rate, clock: &TestClock) -> SharedRateLimiter {
    SharedRateLimiter::new(
        Arc::clone(counters),
        Bucket::Push,
        rate,
        2,
        Arc::new(clock.clone()),
    )
}

fn counters(clock: &TestClock) -> Arc<dyn CounterStore> {
    Arc::new(MemoryCounters::new(Arc::new(clock.clone())))
}

fn millis_of(clock: &TestClock) -> u64 {
    u64::try_from(clock.now().as_millis()).unwrap()
}

/// No window admits more than the burst and the rate, and who waits as told is let in.
#[tokio::test]
async fn two_replicas_allow_what_one_would() {
    for (per_minute, burst) in [(600, 5), (60, 1), (7, 3), (6_000, 200)] {
        let clock = TestClock::new();
        let counters = counters(&clock);
        let rate = Rate { per_minute, burst };
        let replicas = [
            limiter(&counters, rate, &clock),
            limiter(&counters, rate, &clock),
        ];
        let random = TestRandom::new(u64::from(per_minute));
        let window = 60_000 * u64::from(burst) / u64::from(per_minute);
        let (sam, mut allowed) = (member("sam"), Vec::new());
        for turn in 0..2_000 {
            let now = millis_of(&clock);
            match replicas[turn % 2].check(&sam).await {
                Verdict::Allowed => allowed.push(now),
                Verdict::Denied { retry_after } => {
                    let millis = u64::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap();
                    assert!(millis <= 2 * window + 2, "{millis} ms of {window}");
                    clock.advance(Duration::from_millis(if random.one_in(2) {
                        millis
                    } else {
                        random.below(millis + 1)
                    }));
                }
            }
            let within = allowed.iter().filter(|at| now - **at < window).count();
            assert!(within <= 2 * burst as usize, "{within} within a window");
        }
        let passed = millis_of(&clock) - allowed[0];
        let worth = u64::from(burst) + passed * u64::from(per_minute) / 60_000;
        let count = allowed.len() as u64;
        assert!(count <= worth + u64::from(burst), "{count} of {worth}");
        assert!(
            count + u64::from(burst) >= worth * 3 / 5,
            "{count} of {worth}"
        );
    }
}

#[tokio::test]
async fn a_burst_at_once_and_a_wait_that_is_enough() {
    let clock = TestClock::new();
    let counters = counters(&clock);
    let rate = Rate {
        per_minute: 600,
        burst: 5,
    };
    let one = limiter(&counters, rate, &clock);
    let sam = member("sam");
    for wanted in [true, true, true, true, true, false] {
        let allowed = one.check(&sam).await == Verdict::Allowed;
        assert_eq!(allowed, wanted);
    }
    assert_eq!(one.check(&member("alex")).await, Verdict::Allowed);
    for _ in 0..20 {
        let Verdict::Denied { retry_after } = one.check(&sam).await else {
            continue;
        };
        clock.advance(retry_after);
        assert_eq!(one.check(&sam).await, Verdict::Allowed);
    }
}

/// A counter that fails when it is told to.
struct Failing(Arc<dyn CounterStore>, AtomicBool);

impl Failing {
    fn fail(&self) -> StoreResult<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(StoreError::unavailable("away", "away"));
        }
        Ok(())
    }
}

#[async_trait]
impl CounterStore for Failing {
    async fn increment(&self, key: &str, by: u64, ttl: Duration) -> StoreResult<u64> {
        self.fail()?;
        self.0.increment(key, by, ttl).await
    }

    async fn read(&self, key: &str) -> StoreResult<u64> {
        self.fail()?;
        self.0.read(key).await
    }
}

#[tokio::test]
async fn without_its_counter_a_replica_allows_its_share() {
    let clock = TestClock::new();
    let failing = Arc::new(Failing(counters(&clock), AtomicBool::new(true)));
    let shared: Arc<dyn CounterStore> = Arc::<Failing>::clone(&failing);
    let rate = Rate {
        per_minute: 60,
        burst: 10,
    };
    let one = limiter(&shared, rate, &clock);
    let allowed = async |n: usize| {
        let mut allowed = 0;
        for _ in 0..n {
            allowed += usize::from(one.check(&member("sam")).await == Verdict::Allowed);
        }
        allowed
    };
    assert_eq!(allowed(30).await, 5, "half of the burst: there are two");
    failing.1.store(false, Ordering::Relaxed);
    assert_eq!(allowed(30).await, 0, "it is asked again after a second");
    clock.advance(Duration::from_secs(1));
    assert_eq!(allowed(30).await, 10, "shared again");
}
