//! The relay: one method for each route, over the ports.

mod admit;
mod blobs;
mod builder;
mod devices;
mod graphs;
mod keys;
mod members;
mod page;
mod pokes;
mod presence;
mod records;
mod streams;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_wire::{
    StorageKey, Timestamp,
    devices::{MAX_LABEL_BYTES, Suite},
    keys::{MAX_WRAP_BYTES, MAX_WRAPS},
    limits::{
        LimitsResponse, MAX_BODY_BYTES, MAX_KEYS_BYTES, Pages, Quotas, RateLimits, Signatures,
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::{
    Fault, Outcome, Quota, StoreError,
    ports::{
        BlobStore, Clock, Event, EventSink, PokeSink, PokeSource, Random, RateLimiters, Store,
    },
};

pub use admit::{Access, Caller, Gate, Identity};
pub use blobs::Upload;
pub use builder::RelayBuilder;
pub use page::PageQuery;
pub(crate) use records::IDEMPOTENCY_WINDOW;
pub use records::{IdempotencyKey, PullQuery};
pub use streams::PokeStream;

use members::DirectoryCache;
use pokes::Poker;
use presence::Presence;
use streams::Streams;

/// A relay over its ports. Made by [`RelayBuilder::build`]; ended by [`close`](Self::close).
///
/// Every method that answers a route takes a [`Caller`] or an [`Access`], which only
/// [`admit`](Self::admit) and [`open_graph`](Self::open_graph) give out: a route cannot forget to
/// ask.
pub struct Relay {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    directory: DirectoryCache,
    limiters: RateLimiters,
    events: Arc<dyn EventSink>,
    poke_sinks: Vec<Arc<dyn PokeSink>>,
    poke_source: Arc<dyn PokeSource>,
    pub(crate) clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    quotas: Quotas,
    rates: RateLimits,
    pages: Pages,
    signatures: Signatures,
    upload_timeout: Duration,

    poker: Poker,
    presence: Presence,
    streams: Streams,
    revoked: moka::sync::Cache<argala_wire::devices::DeviceRef, ()>,
    roster_checks: moka::sync::Cache<StorageKey, Timestamp>,
    sink_panics: AtomicU64,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Relay {
    /// The ceilings in force.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The clock that the relay goes by.
    #[must_use]
    pub const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The store that the relay keeps everything but blobs' bytes in.
    #[must_use]
    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Random bytes, for request ids and the like.
    #[must_use]
    pub const fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    /// How many tasks run beside the requests: pokes and the time within which equal ones are
    /// one, looks at the directory, notes to the store.
    #[must_use]
    pub fn background_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How often the event sink has panicked.
    #[must_use]
    pub fn sink_panics(&self) -> u64 {
        self.sink_panics.load(Ordering::Relaxed)
    }

    /// `GET /limits`: every ceiling in force.
    #[must_use]
    pub fn limits(&self) -> LimitsResponse {
        LimitsResponse {
            quotas: self.quotas,
            rate_limits: self.rates,
            pages: self.pages,
            suites: Suite::ALL.to_vec(),
            signatures: self.signatures,
            max_wrap_bytes: MAX_WRAP_BYTES as u64,
            max_wraps: MAX_WRAPS as u64,
            max_keys_bytes: MAX_KEYS_BYTES,
            max_body_bytes: MAX_BODY_BYTES,
            max_label_bytes: MAX_LABEL_BYTES as u64,
            max_streams_per_member: streams::MAX_STREAMS_PER_MEMBER as u64,
        }
    }

    /// Ends the relay: poke streams are told to resync and end, what runs in the background
    /// finishes, and presence is written. Requests that are under way go on; end them first.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.flush_presence().await;
    }

    /// Tells the sink of `event`. A sink that panics is contained and counted.
    pub(crate) fn emit(&self, event: &Event) {
        if catch_unwind(AssertUnwindSafe(|| self.events.emit(event))).is_err() {
            self.sink_panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(event = event.name(), "the event sink panicked");
        }
    }

    /// Runs `work` to its end, even if the caller stops waiting: a change that a store has
    /// committed is then followed by its event and its pokes, and an upload by its tidying.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> Outcome<T> {
        match self.tasks.spawn(work.in_current_span()).await {
            Ok(outcome) => outcome,
            Err(died) => Err(StoreError::internal("a task of the relay died", died).into()),
        }
    }

    /// Passes a fault on, after the event that it calls for where it refuses the caller as such.
    fn refuse(&self, caller: &argala_wire::devices::DeviceRef, fault: Fault) -> Fault {
        if let Fault::Rejected(rejection) = &fault {
            if matches!(rejection, crate::Rejection::DeviceRevoked) {
                self.revoked.insert(caller.clone(), ());
            }
            if let Some(reason) = rejection.auth_reason() {
                self.emit(&Event::AuthRejected { reason });
            }
        }
        fault
    }

    fn quota_exceeded(&self, caller: &Caller, storage_key: StorageKey, what: Quota) {
        let member_id = caller.device().member_id.clone();
        self.emit(&Event::QuotaExceeded {
            member_id,
            storage_key,
            what,
        });
    }
}
