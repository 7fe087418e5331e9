//! How often a member may call (protocol, section 6): a token bucket for each, kept by the generic
//! cell rate algorithm.
//!
//! The script of the shared limiter on Redis is a translation of [`TokenBucket::take`], for which
//! reason every number here is one that a script's floating point holds exactly: times in
//! microseconds, debts in nanoseconds of at most [`TokenBucket::MOST`].

use std::time::Duration;

use argala_wire::limits::Rate;

use crate::ports::Verdict;

/// A bucket of one rate; which member's is for the caller to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    cost: u64,
    capacity: u64,
}

/// What is kept of one member. Who has none has a full bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// When this was written, in microseconds since 1970.
    pub at: u64,
    /// How long the bucket needed to be full again then, in nanoseconds.
    pub owed: u64,
}

impl Level {
    /// Whether the bucket is full at `now`, which is as good as keeping nothing.
    #[must_use]
    pub const fn is_paid(self, now: u64) -> bool {
        now.saturating_sub(self.at).saturating_mul(1_000) >= self.owed
    }
}

impl TokenBucket {
    /// The longest that a bucket takes to fill, in nanoseconds: 90 days, below the 2^53 up to which
    /// a double counts exactly. A burst that is worth more is cut to it.
    pub const MOST: u64 = 90 * 86_400 * 1_000_000_000;

    /// A bucket of `rate`; rates of zero count as one.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        let per_minute = if rate.per_minute == 0 {
            1
        } else {
            rate.per_minute
        };
        let burst = if rate.burst == 0 { 1 } else { rate.burst };
        let cost = 60_000_000_000 / per_minute as u64;
        let capacity = cost.saturating_mul(burst as u64);
        Self {
            cost,
            capacity: if capacity < Self::MOST {
                capacity
            } else {
                Self::MOST
            },
        }
    }

    /// What one request costs, in nanoseconds.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// What a full bucket is worth, in nanoseconds.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Counts one request at `now` (microseconds since 1970), or says how long to wait, and what to
    /// keep; `None` there: what is kept is still right.
    ///
    /// A clock that jumps back shortens nothing, and blocks nobody for longer than an empty bucket
    /// takes for one request.
    #[must_use]
    pub fn take(&self, kept: Option<Level>, now: u64) -> (Verdict, Option<Level>) {
        let (owed, was_cut) = self.owed(kept, now);
        let after = owed + self.cost;
        if after > self.capacity {
            let verdict = Verdict::Denied {
                retry_after: Duration::from_nanos(after - self.capacity),
            };
            // Unless a cut is kept, the wait begins anew each time.
            return (verdict, was_cut.then_some(Level { at: now, owed }));
        }
        let level = Level {
            at: now,
            owed: after,
        };
        (Verdict::Allowed, Some(level))
    }

    /// What to keep of a request that somebody else has allowed: it empties the bucket at the most.
    #[must_use]
    pub fn charge(&self, kept: Option<Level>, now: u64) -> Level {
        let (owed, _) = self.owed(kept, now);
        Level {
            at: now,
            owed: (owed + self.cost).min(self.capacity),
        }
    }

    /// What is owed at `now`, and whether that was more than a bucket holds.
    fn owed(&self, kept: Option<Level>, now: u64) -> (u64, bool) {
        let Some(level) = kept else {
            return (0, false);
        };
        let passed = (i128::from(now) - i128::from(level.at)) * 1_000;
        let owed = i128::from(level.owed) - passed;
        let capacity = i128::from(self.capacity);
        let cut = owed.clamp(0, capacity);
        let fits = u64::try_from(cut).expect("between nothing and the capacity");
        (fits, owed > capacity)
    }
}

/// The part of `rate` that one of `replicas` may allow by itself, so that all of them together
/// allow no more than `rate`; never nothing.
#[must_use]
pub fn share(rate: Rate, replicas: u32) -> Rate {
    let replicas = replicas.max(1);
    Rate {
        per_minute: (rate.per_minute / replicas).max(1),
        burst: (rate.burst / replicas).max(1),
    }
}
