//! One allowance for a member, whichever replica they ask.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use argala_core::{
    memory::MemoryLimiter,
    ports::{Clock, RateLimiter, Verdict},
    rules::rate::{TokenBucket, share},
};
use argala_wire::{
    MemberId,
    limits::{Bucket, Rate},
};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    link::Link,
    names::{Names, encode},
    script::TAKE,
};

/// Members who are known to be denied, at the most.
const REMEMBERED: u64 = 10_000;

/// How many replicas live, as far as is known: the last count stays while Redis is away.
pub(crate) struct Replicas(AtomicU32);

impl Replicas {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether that is news.
    pub(crate) fn set(&self, count: u32) -> bool {
        self.0.swap(count, Ordering::Relaxed) != count
    }
}

/// What tells the time: Redis, so that replicas agree, or a test.
pub(crate) enum Time {
    Redis { since: Instant },
    Given(Arc<dyn Clock>),
}

impl Time {
    /// What the script is told, in microseconds: nothing where it asks by itself.
    fn for_script(&self) -> String {
        match self {
            Self::Redis { .. } => String::new(),
            Self::Given(clock) => {
                let millis = u64::try_from(clock.now().as_millis()).unwrap_or(0);
                (millis * 1_000).to_string()
            }
        }
    }

    /// A time to compare with others of this kind.
    fn here(&self) -> Duration {
        match self {
            Self::Redis { since } => since.elapsed(),
            Self::Given(clock) => {
                let millis = u64::try_from(clock.now().as_millis()).unwrap_or(0);
                Duration::from_millis(millis)
            }
        }
    }
}

/// A denial, and from when until when it holds.
#[derive(Debug, Clone, Copy)]
struct Denial {
    since: Duration,
    until: Duration,
}

/// Limits each member to a [`Rate`] by the token bucket that Redis keeps of them.
///
/// Redis away, or slower than a request may wait: this replica's own bucket decides, to its share
/// of the rate. That bucket counts what Redis allows here, too, so that nobody is given their
/// burst anew when Redis goes.
pub(crate) struct RedisLimiter {
    link: Arc<Link>,
    names: Names,
    bucket: Bucket,
    rate: Rate,
    level: TokenBucket,
    time: Time,
    local: MemoryLimiter,
    denials: moka::sync::Cache<MemberId, Denial>,
}

impl RedisLimiter {
    pub(crate) fn new(
        link: Arc<Link>,
        names: Names,
        bucket: Bucket,
        rate: Rate,
        time: Time,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            link,
            names,
            bucket,
            rate,
            level: TokenBucket::new(rate),
            time,
            local: MemoryLimiter::new(rate, clock),
            denials: moka::sync::Cache::new(REMEMBERED),
        }
    }

    /// From now on this many share the rate.
    pub(crate) fn share_with(&self, replicas: u32) {
        self.local.set_rate(share(self.rate, replicas));
    }

    /// A denial that still holds. Whatever else is allowed meanwhile can only make it last longer,
    /// so Redis need not be asked again.
    fn known_denial(&self, member: &MemberId) -> Option<Verdict> {
        let denial = self.denials.get(member)?;
        let now = self.time.here();
        if denial.since <= now && now < denial.until {
            return Some(Verdict::Denied {
                retry_after: denial.until - now,
            });
        }
        self.denials.invalidate(member);
        None
    }

    async fn ask(&self, member: &MemberId) -> Option<Verdict> {
        let client = self.link.client()?;
        let key = self
            .names
            .key(&["limit", self.bucket.as_str(), &encode(member)]);
        let arguments = vec![
            self.level.cost().to_string(),
            self.level.capacity().to_string(),
            self.time.for_script(),
        ];
        let wait = self.link.ask(TAKE.run(&client, &key, arguments)).await?;
        Some(match u64::try_from(wait) {
            Ok(0) | Err(_) => Verdict::Allowed,
            Ok(nanos) => Verdict::Denied {
                retry_after: Duration::from_nanos(nanos),
            },
        })
    }
}

#[async_trait]
impl RateLimiter for RedisLimiter {
    async fn check(&self, member: &MemberId) -> Verdict {
        if let Some(denied) = self.known_denial(member) {
            return denied;
        }
        // Before it is asked: the wait that it tells is no longer than from here.
        let since = self.time.here();
        let Some(verdict) = self.ask(member).await else {
            return self.local.take(member);
        };
        match verdict {
            Verdict::Allowed => self.local.charge(member),
            Verdict::Denied { retry_after } => {
                let until = since + retry_after;
                self.denials.insert(member.clone(), Denial { since, until });
            }
        }
        verdict
    }
}
