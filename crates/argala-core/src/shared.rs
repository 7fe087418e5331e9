//! Limits over a counter that a host brings.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use argala_wire::{
    MemberId,
    limits::{Bucket, Rate},
};
use async_trait::async_trait;

use crate::{
    StoreError, StoreResult,
    memory::MemoryLimiter,
    ports::{Clock, CounterStore, RateLimiter, Verdict},
    rules::rate,
};

/// How long a counter may take before this process counts by itself.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long it then does before the counter is asked again, in milliseconds.
const PAUSE: i64 = 1_000;

/// Limits each member by a sliding window over a [`CounterStore`].
///
/// Time is cut into windows as long as the burst takes at the sustained rate. What counts is the
/// running window's number and the part of the one before that a window's length back still
/// reaches: a member may send the burst at once and the rate for ever, as with a token bucket, but
/// within somewhat coarser bounds. Replicas' clocks should agree to within a small part of a
/// window.
///
/// Where the counter fails or is slow, this process counts by itself for a while, to its share of
/// the rate.
pub struct SharedRateLimiter {
    counters: Arc<dyn CounterStore>,
    clock: Arc<dyn Clock>,
    bucket: Bucket,
    limit: u64,
    /// A window's length in milliseconds.
    window: u64,
    local: MemoryLimiter,
    /// Until when this process counts by itself.
    alone_until: AtomicI64,
}

impl SharedRateLimiter {
    /// A limiter of `rate` for the requests of `bucket`, of one of `replicas` processes that share
    /// the counters.
    #[must_use]
    pub fn new(
        counters: Arc<dyn CounterStore>,
        bucket: Bucket,
        rate: Rate,
        replicas: u32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (per_minute, burst) = (rate.per_minute.max(1), rate.burst.max(1));
        let window = (60_000 * u64::from(burst)).div_ceil(u64::from(per_minute));
        Self {
            counters,
            bucket,
            limit: u64::from(burst),
            window: window.max(1),
            local: MemoryLimiter::new(rate::share(rate, replicas), Arc::clone(&clock)),
            clock,
            alone_until: AtomicI64::new(i64::MIN),
        }
    }

    /// The window's number and how far `now` is in it.
    fn place(&self) -> (u64, u64) {
        let now = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        (now / self.window, now % self.window)
    }

    fn key(&self, member: &MemberId, window: u64) -> String {
        let mut key = format!("limit:{}:{window}:", self.bucket.as_str());
        let _ = write!(key, "{member}");
        key
    }

    /// How long until one more is allowed, if it is not now. The window before held `before`, the
    /// running one holds `running`, `into` of it are over.
    fn wait(&self, before: u64, running: u64, into: u64) -> Option<Duration> {
        let (window, limit) = (u128::from(self.window), u128::from(self.limit));
        let (before, running, into) = (u128::from(before), u128::from(running), u128::from(into));
        // Whole requests only: a burst of one would otherwise be allowed every other window.
        let carried = before * (window - into) / window;
        if carried + running < limit {
            return None;
        }
        // The first moment at which no more than `room` of a window's `count` are carried over.
        let shrunk = |count: u128, room: u128| {
            let left = ((room + 1) * window).div_ceil(count.max(1));
            (window + 1).saturating_sub(left)
        };
        let until = if running < limit {
            shrunk(before, limit - running - 1)
        } else {
            window + shrunk(running, limit - 1)
        };
        let millis = u64::try_from(until.saturating_sub(into)).unwrap_or(u64::MAX);
        Some(Duration::from_millis(millis.max(1)))
    }

    async fn ask(&self, member: &MemberId) -> StoreResult<Verdict> {
        let (window, into) = self.place();
        let key = self.key(member, window);
        let before = match window.checked_sub(1) {
            Some(before) => self.counters.read(&self.key(member, before)).await?,
            None => 0,
        };
        let running = self.counters.read(&key).await?;
        if let Some(retry_after) = self.wait(before, running, into) {
            // Asked before it was counted: who is denied is not counted.
            return Ok(Verdict::Denied { retry_after });
        }
        // It is read for one window more, and clocks may differ by part of one.
        let ttl = Duration::from_millis(self.window.saturating_mul(3));
        let counted = self.counters.increment(&key, 1, ttl).await?;
        // Others may have been counted in between.
        Ok(match self.wait(before, counted.saturating_sub(1), into) {
            None => Verdict::Allowed,
            Some(retry_after) => Verdict::Denied { retry_after },
        })
    }
}

#[async_trait]
impl RateLimiter for SharedRateLimiter {
    async fn check(&self, member: &MemberId) -> Verdict {
        let now = self.clock.now().as_millis();
        let alone_until = self.alone_until.load(Ordering::Relaxed);
        // A clock that was set back must not make this last.
        if now < alone_until && now >= alone_until.saturating_sub(PAUSE) {
            return self.local.take(member);
        }
        let asked = tokio::time::timeout(PATIENCE, self.ask(member)).await;
        let fault = match asked {
            Ok(Ok(verdict)) => {
                if verdict == Verdict::Allowed {
                    self.local.charge(member);
                }
                return verdict;
            }
            Ok(Err(error)) => error,
            Err(late) => StoreError::unavailable("the counter did not answer in time", late),
        };
        let until = now.saturating_add(PAUSE);
        if self.alone_until.swap(until, Ordering::Relaxed) == alone_until {
            tracing::warn!(
                error = &fault as &dyn std::error::Error,
                bucket = self.bucket.as_str(),
                "the shared counter failed; this process limits by itself for a second"
            );
        }
        self.local.take(member)
    }
}
