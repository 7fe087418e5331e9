//! Counters that replicas share, for hosts that bring their own.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreResult;

/// Counts up, and forgets. Any store that has an atomic increment with an expiry will do;
/// [`SharedRateLimiter`](crate::shared::SharedRateLimiter) makes a rate limiter of it.
#[async_trait]
pub trait CounterStore: Send + Sync + 'static {
    /// Adds `by` to the counter `key` and gives what it is then; one that is not there counts from
    /// 0. It must be gone `ttl` after it was last added to, and may be as soon as `ttl` after it
    /// was first; a `ttl` is at least a millisecond.
    ///
    /// The addition and its expiry are one step: a counter that no expiry was ever given to, since
    /// a process ended between the two, would lock its member out for ever.
    async fn increment(&self, key: &str, by: u64, ttl: Duration) -> StoreResult<u64>;

    /// What the counter is; 0 where there is none.
    async fn read(&self, key: &str) -> StoreResult<u64>;
}
