//! Replicas on one Redis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use argala_core::ports::{
    Clock, CounterStore, Poke, PokeSignal, PokeSink, PokeSource, PokeSubscription, RateLimiter,
    RateLimiters, SystemClock, SystemRandom, Verdict,
};
use argala_redis::{Options, Redis};
use argala_testkit::{PATIENCE, device_ref, eventually, member};
use argala_wire::limits::{Rate, RateLimits};
use futures_util::StreamExt as _;

/// Far longer than a busy machine takes: for tests in which Redis is well.
const PATIENT: Duration = Duration::from_secs(10);

/// Options that no other test has: names of its own.
pub(crate) fn options(url: &str) -> Options {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Options {
        prefix: format!("test-{}-{number}", std::process::id()),
        ..Options::new(url)
    }
}

/// The same for a machine that is busy, on which Redis is well all the time.
pub(crate) fn patient(url: &str) -> Options {
    Options {
        timeout: PATIENT,
        limiter_timeout: PATIENT,
        connect_timeout: PATIENT,
        ..options(url)
    }
}

pub(crate) fn replica(options: &Options) -> Redis {
    Redis::new(options.clone(), &SystemRandom).unwrap()
}

/// Waits until a replica's connections are well.
pub(crate) async fn up(redis: &Redis) {
    eventually("Redis is in use", || async {
        redis.status().up.then_some(())
    })
    .await;
}

pub(crate) const fn rates(rate: Rate) -> RateLimits {
    RateLimits {
        push: rate,
        pull: rate,
        blobs: rate,
        keys: rate,
    }
}

/// A replica with its limiters.
pub(crate) struct Limits {
    pub(crate) redis: Redis,
    pub(crate) limiters: RateLimiters,
}

impl Limits {
    pub(crate) fn start(options: &Options, per_minute: u32, burst: u32) -> Self {
        let redis = replica(options);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let limiters = redis.limiters(&rates(Rate { per_minute, burst }), &clock);
        Self { redis, limiters }
    }

    /// How many of some requests of a member are allowed.
    pub(crate) async fn allowed(&self, name: &str, requests: usize) -> usize {
        let mut allowed = 0;
        for _ in 0..requests {
            let verdict = self.limiters.push.check(&member(name)).await;
            allowed += usize::from(verdict == Verdict::Allowed);
        }
        allowed
    }
}

/// A replica with its pokes.
pub(crate) struct Pokes {
    pub(crate) redis: Redis,
    pub(crate) sink: Arc<dyn PokeSink>,
    pub(crate) source: Arc<dyn PokeSource>,
}

impl Pokes {
    pub(crate) fn start(options: &Options) -> Self {
        let redis = replica(options);
        let (sink, source) = redis.pokes();
        Self {
            redis,
            sink,
            source,
        }
    }

    /// What a device of a member is told here from now on.
    pub(crate) async fn listen(&self, member: &str, device: &str) -> PokeSubscription {
        let listening = self.source.subscribe(&device_ref(member, device)).await;
        listening.expect("a stream opens")
    }
}

/// Pokes until one arrives: at which moment a connection is made again is nobody's promise.
pub(crate) async fn arrives(from: &Pokes, poke: &Poke, at: &mut PokeSubscription) {
    let wanted = PokeSignal::Changed(poke.storage_key.clone());
    let arrived = async {
        loop {
            from.sink.poke(poke).await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(100), at.next());
            if next
                .await
                .is_ok_and(|signal| signal.as_ref() == Some(&wanted))
            {
                return;
            }
        }
    };
    let arrived = tokio::time::timeout(PATIENCE, arrived).await;
    arrived.expect("pokes arrive again");
}

pub(crate) type Limiter = dyn RateLimiter;
pub(crate) type Counters = dyn CounterStore;
