//! A token bucket for each member, in memory.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use argala_wire::{
    MemberId,
    limits::{Rate, RateLimits},
};
use async_trait::async_trait;

use crate::{
    ports::{Clock, RateLimiter, RateLimiters, Verdict},
    rules::rate::{Level, TokenBucket},
};

const SHARDS: usize = 16;
/// A shard is first tidied when it holds this many members.
const TIDY_AT: usize = 1_024;

/// Limits each member to a [`Rate`]. The rule is [`TokenBucket`]'s; this keeps what it asks to
/// keep.
pub struct MemoryLimiter {
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    bucket: TokenBucket,
    levels: HashMap<MemberId, Level>,
    tidy_at: usize,
}

impl Shard {
    fn keep(&mut self, member: &MemberId, level: Level, now: u64) {
        self.levels.insert(member.clone(), level);
        if self.levels.len() >= self.tidy_at {
            // A full bucket is as good as none. Doubling keeps the cost of tidying constant for
            // each request, and memory within twice what is in use.
            self.levels.retain(|_, level| !level.is_paid(now));
            self.tidy_at = TIDY_AT.max(self.levels.len() * 2);
        }
    }
}

impl MemoryLimiter {
    /// A limiter of `rate`; rates of zero count as one.
    #[must_use]
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Self {
        let shard = || {
            Mutex::new(Shard {
                bucket: TokenBucket::new(rate),
                levels: HashMap::new(),
                tidy_at: TIDY_AT,
            })
        };
        Self {
            clock,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| shard()),
        }
    }

    /// One limiter for each bucket.
    #[must_use]
    pub fn for_each_bucket(rates: &RateLimits, clock: &Arc<dyn Clock>) -> RateLimiters {
        let of = |rate| -> Arc<dyn RateLimiter> { Arc::new(Self::new(rate, Arc::clone(clock))) };
        RateLimiters {
            push: of(rates.push),
            pull: of(rates.pull),
            blobs: of(rates.blobs),
            keys: of(rates.keys),
        }
    }

    /// From now on limits to another rate. What members owe stays owed, as far as a bucket of that
    /// rate can owe it.
    pub fn set_rate(&self, rate: Rate) {
        for shard in &self.shards {
            lock(shard).bucket = TokenBucket::new(rate);
        }
    }

    /// Counts a request that somebody else has allowed.
    pub fn charge(&self, member: &MemberId) {
        let now = self.now();
        let mut shard = self.shard(member);
        let kept = shard.levels.get(member).copied();
        let level = shard.bucket.charge(kept, now);
        shard.keep(member, level, now);
    }

    /// Counts a request of `member`, or says how long to wait.
    pub fn take(&self, member: &MemberId) -> Verdict {
        let now = self.now();
        let mut shard = self.shard(member);
        let kept = shard.levels.get(member).copied();
        let (verdict, level) = shard.bucket.take(kept, now);
        if let Some(level) = level {
            shard.keep(member, level, now);
        }
        verdict
    }

    fn now(&self) -> u64 {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        millis.saturating_mul(1_000)
    }

    fn shard(&self, member: &MemberId) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(self.hasher.hash_one(member) % SHARDS as u64)
            .expect("less than the number of shards");
        lock(&self.shards[at])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl RateLimiter for MemoryLimiter {
    async fn check(&self, member: &MemberId) -> Verdict {
        self.take(member)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicI64, Ordering},
        time::Duration,
    };

    use argala_wire::Timestamp;

    use super::*;

    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    fn limiter(per_minute: u32, burst: u32) -> (MemoryLimiter, Arc<Hand>) {
        let hand = Arc::new(Hand(AtomicI64::new(1_000_000)));
        (
            MemoryLimiter::new(Rate { per_minute, burst }, Arc::<Hand>::clone(&hand)),
            hand,
        )
    }

    fn member(name: &str) -> MemberId {
        MemberId::new(name).expect("legal")
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (limiter, hand) = limiter(600, 3);
        let sam = member("sam");
        let allowed = |n| {
            (0..n)
                .filter(|_| limiter.take(&sam) == Verdict::Allowed)
                .count()
        };
        assert_eq!(allowed(10), 3);
        assert_eq!(
            limiter.take(&sam),
            Verdict::Denied {
                retry_after: Duration::from_millis(100)
            }
        );
        assert_eq!(limiter.take(&member("alex")), Verdict::Allowed);
        hand.0.fetch_add(99, Ordering::Relaxed);
        assert_eq!(allowed(1), 0);
        hand.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(allowed(2), 1);
        hand.0.fetch_add(60_000, Ordering::Relaxed);
        assert_eq!(allowed(10), 3);
    }

    #[test]
    fn a_clock_set_back_blocks_nobody_for_long() {
        let (limiter, hand) = limiter(600, 3);
        let sam = member("sam");
        while limiter.take(&sam) == Verdict::Allowed {}
        hand.0.fetch_sub(900_000, Ordering::Relaxed);
        assert!(matches!(
            limiter.take(&sam),
            Verdict::Denied { retry_after } if retry_after <= Duration::from_millis(100)
        ));
    }

    #[test]
    fn members_at_rest_take_no_room() {
        let (limiter, hand) = limiter(600, 3);
        for n in 0..200_000 {
            limiter.take(&member(&format!("m{n}")));
            hand.0.fetch_add(1, Ordering::Relaxed);
        }
        let kept: usize = limiter
            .shards
            .iter()
            .map(|shard| shard.lock().expect("whole").levels.len())
            .sum();
        assert!(kept <= SHARDS * TIDY_AT, "{kept}");
    }
}
