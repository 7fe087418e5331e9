//! Rate limits: how often a member may call.

use std::{sync::Arc, time::Duration};

use argala_wire::{MemberId, limits::Bucket};
use async_trait::async_trait;

/// Whether a request may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may; it has been counted.
    Allowed,
    /// It may not; it has not been counted.
    Denied {
        /// How long until one is allowed again, all else unchanged.
        retry_after: Duration,
    },
}

/// One member's allowance of one kind of request.
///
/// It has no error: a limiter that cannot reach what it shares decides by itself, since a limit
/// must neither vanish nor become an outage.
#[async_trait]
pub trait RateLimiter: Send + Sync + 'static {
    /// Counts one request of `member`, or says how long to wait.
    async fn check(&self, member: &MemberId) -> Verdict;
}

/// A limiter for each bucket.
#[derive(Clone)]
pub struct RateLimiters {
    /// Of pushes.
    pub push: Arc<dyn RateLimiter>,
    /// Of pulls.
    pub pull: Arc<dyn RateLimiter>,
    /// Of blob requests.
    pub blobs: Arc<dyn RateLimiter>,
    /// Of requests about devices and keys.
    pub keys: Arc<dyn RateLimiter>,
}

impl RateLimiters {
    /// The limiter of `bucket`.
    #[must_use]
    pub fn of(&self, bucket: Bucket) -> &Arc<dyn RateLimiter> {
        match bucket {
            Bucket::Push => &self.push,
            Bucket::Pull => &self.pull,
            Bucket::Blobs => &self.blobs,
            Bucket::Keys => &self.keys,
        }
    }
}
