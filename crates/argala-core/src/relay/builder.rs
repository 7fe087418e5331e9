//! Putting a relay together.

use std::{sync::Arc, time::Duration};

use argala_wire::limits::{Pages, Quotas, RateLimits, Signatures};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Relay, members::DirectoryCache, pokes::Poker, presence::Presence, streams::Streams};
use crate::{
    memory::{MemoryLimiter, MemoryPokes},
    ports::{
        BlobStore, Clock, Directory, EventSink, NoEvents, PokeSink, PokeSource, Random,
        RateLimiters, Store, SystemClock, SystemRandom,
    },
};

/// Revocations that are remembered without asking the store.
const REMEMBERED_REVOCATIONS: u64 = 100_000;
/// Graphs whose last look at the directory is remembered.
const REMEMBERED_CHECKS: u64 = 100_000;

/// Puts a [`Relay`] together from the ports it needs; the rest has defaults that suit one process.
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    blobs: Arc<dyn BlobStore>,
    directory: Arc<dyn Directory>,
    directory_cache_ttl: Duration,
    limiters: Option<RateLimiters>,
    events: Arc<dyn EventSink>,
    carrier: Option<(Arc<dyn PokeSink>, Arc<dyn PokeSource>)>,
    sinks: Vec<Arc<dyn PokeSink>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    quotas: Quotas,
    rates: RateLimits,
    signatures: Signatures,
    upload_timeout: Duration,
}

impl Relay {
    /// Begins to put a relay together from what it cannot do without.
    #[must_use]
    pub fn builder(
        store: Arc<dyn Store>,
        blobs: Arc<dyn BlobStore>,
        directory: Arc<dyn Directory>,
    ) -> RelayBuilder {
        RelayBuilder {
            store,
            blobs,
            directory,
            directory_cache_ttl: Duration::ZERO,
            limiters: None,
            events: Arc::new(NoEvents),
            carrier: None,
            sinks: Vec::new(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            quotas: Quotas::default(),
            rates: RateLimits::default(),
            signatures: Signatures::default(),
            upload_timeout: Duration::from_secs(30 * 60),
        }
    }
}

impl RelayBuilder {
    /// The ceilings; the protocol's defaults otherwise.
    #[must_use]
    pub const fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// The rates that `GET /limits` tells, and that limiters in memory hold to where
    /// [`limiters`](Self::limiters) brings no others.
    #[must_use]
    pub const fn rate_limits(mut self, rates: RateLimits) -> Self {
        self.rates = rates;
        self
    }

    /// A limiter for each bucket.
    #[must_use]
    pub fn limiters(mut self, limiters: RateLimiters) -> Self {
        self.limiters = Some(limiters);
        self
    }

    /// Whether records must be signed; required otherwise.
    #[must_use]
    pub const fn signatures(mut self, signatures: Signatures) -> Self {
        self.signatures = signatures;
        self
    }

    /// Who is told of events.
    #[must_use]
    pub fn events(mut self, events: impl EventSink) -> Self {
        self.events = Arc::new(events);
        self
    }

    /// One more that is told of each poke, beside what carries pokes to streams. May be called
    /// several times.
    #[must_use]
    pub fn poke_sink(mut self, sink: Arc<dyn PokeSink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// What carries pokes to the streams of `GET /pokes`; [`MemoryPokes`] otherwise.
    #[must_use]
    pub fn pokes(mut self, sink: Arc<dyn PokeSink>, source: Arc<dyn PokeSource>) -> Self {
        self.carrier = Some((sink, source));
        self
    }

    /// How long an answer of the directory may be used again; not at all otherwise. Rotate, grant
    /// and the roster of a graph always ask afresh.
    #[must_use]
    pub const fn directory_cache_ttl(mut self, ttl: Duration) -> Self {
        self.directory_cache_ttl = ttl;
        self
    }

    /// What tells the time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What gives random bytes.
    #[must_use]
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// How long an upload may take; half an hour otherwise. Keep it below the sweep's grace, so
    /// that no upload is swept while it runs.
    #[must_use]
    pub const fn upload_timeout(mut self, timeout: Duration) -> Self {
        self.upload_timeout = timeout;
        self
    }

    /// The relay.
    #[must_use]
    pub fn build(self) -> Arc<Relay> {
        let limiters = self
            .limiters
            .unwrap_or_else(|| MemoryLimiter::for_each_bucket(&self.rates, &self.clock));
        let (carrier, poke_source) = self.carrier.unwrap_or_else(|| {
            let memory = Arc::new(MemoryPokes::new());
            (Arc::<MemoryPokes>::clone(&memory), memory)
        });
        let mut poke_sinks = vec![carrier];
        poke_sinks.extend(self.sinks);
        let directory = DirectoryCache::new(
            self.directory,
            self.directory_cache_ttl,
            Arc::clone(&self.clock),
        );
        Arc::new(Relay {
            store: self.store,
            blobs: self.blobs,
            directory,
            limiters,
            events: self.events,
            poke_sinks,
            poke_source,
            clock: self.clock,
            random: self.random,
            quotas: self.quotas,
            rates: self.rates,
            pages: Pages::default(),
            signatures: self.signatures,
            upload_timeout: self.upload_timeout,
            poker: Poker::default(),
            presence: Presence::default(),
            streams: Streams::default(),
            revoked: moka::sync::Cache::new(REMEMBERED_REVOCATIONS),
            roster_checks: moka::sync::Cache::new(REMEMBERED_CHECKS),
            sink_panics: Default::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        })
    }
}
