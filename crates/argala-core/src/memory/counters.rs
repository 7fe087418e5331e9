//! Counters within one process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use argala_wire::Timestamp;
use async_trait::async_trait;

use crate::{
    StoreResult,
    ports::{Clock, CounterStore},
};

/// The counters are first tidied when there are this many.
const TIDY_AT: usize = 1_024;

/// A [`CounterStore`] in memory: for one process, and to hold others against.
pub struct MemoryCounters {
    clock: Arc<dyn Clock>,
    counters: Mutex<Counters>,
}

struct Counters {
    /// What each is, and when it is gone.
    kept: HashMap<Box<str>, (u64, Timestamp)>,
    tidy_at: usize,
}

impl MemoryCounters {
    /// No counters yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            counters: Mutex::new(Counters {
                kept: HashMap::new(),
                tidy_at: TIDY_AT,
            }),
        }
    }
}

#[async_trait]
impl CounterStore for MemoryCounters {
    async fn increment(&self, key: &str, by: u64, ttl: Duration) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if counters.kept.len() >= counters.tidy_at {
            counters.kept.retain(|_, (_, until)| *until > now);
            counters.tidy_at = TIDY_AT.max(counters.kept.len() * 2);
        }
        let fresh = (0, now.saturating_add(ttl));
        let (count, until) = counters.kept.entry(key.into()).or_insert(fresh);
        if *until <= now {
            (*count, *until) = fresh;
        }
        *count = count.saturating_add(by);
        Ok(*count)
    }

    async fn read(&self, key: &str) -> StoreResult<u64> {
        let now = self.clock.now();
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = counters.kept.get(key);
        Ok(kept.map_or(0, |(count, until)| if *until > now { *count } else { 0 }))
    }
}
