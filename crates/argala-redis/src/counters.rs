//! Counters on Redis.

use std::{sync::Arc, time::Duration};

use argala_core::{StoreError, StoreResult, ports::CounterStore};
use async_trait::async_trait;
use fred::interfaces::KeysInterface as _;

use crate::{link::Link, names::Names, script::COUNT};

const AWAY: &str = "Redis is away";

/// A [`CounterStore`] on Redis.
pub(crate) struct RedisCounters {
    pub(crate) link: Arc<Link>,
    pub(crate) names: Names,
}

impl RedisCounters {
    fn key(&self, key: &str) -> String {
        self.names.key(&["counter", key])
    }
}

fn away() -> StoreError {
    StoreError::unavailable(AWAY, AWAY)
}

#[async_trait]
impl CounterStore for RedisCounters {
    async fn increment(&self, key: &str, by: u64, ttl: Duration) -> StoreResult<u64> {
        let client = self.link.client().ok_or_else(away)?;
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        // What is more than an expiry may be is for ever, nearly.
        let ttl = ttl.min(1 << 50);
        let arguments = vec![by.to_string(), ttl.to_string()];
        let key = self.key(key);
        let count = self.link.ask(COUNT.run(&client, &key, arguments)).await;
        let count = count.ok_or_else(away)?;
        u64::try_from(count).map_err(|_| StoreError::corrupt("a counter is below nothing"))
    }

    async fn read(&self, key: &str) -> StoreResult<u64> {
        let client = self.link.client().ok_or_else(away)?;
        let count = self.link.ask(client.get::<Option<u64>, _>(self.key(key)));
        Ok(count.await.ok_or_else(away)?.unwrap_or(0))
    }
}
