//! The pass that forgets what is due. The embedded relay runs it in its own process, a cluster's
//! sweeper beside the relays, and a host in a job of its own.

mod pass;
mod preview;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use argala_wire::Timestamp;
use tokio::sync::Mutex;

use crate::{
    StoreResult,
    erase::Eraser,
    ports::{
        BlobStore, Clock, Directory, EventSink, ForgetReason, NoEvents, ObjectKey, SystemClock,
        store::SweepStore,
    },
};

pub use preview::{Due, Preview};

/// How a pass goes about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// How old an upload must be to be taken for abandoned. Twice the longest upload.
    pub grace: Duration,
    /// Rows taken at a time: small, so that pushes come between.
    pub batch: usize,
    /// How long each kind of work may go on within a pass, at the most. The next pass goes on.
    pub stage_time: Duration,
    /// How long the directory may take to answer, and a blob store to remove or list objects.
    pub patience: Duration,
    /// Pages of a thousand objects that a pass compares with the rows, at the most.
    pub pages: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(60 * 60),
            batch: 100,
            stage_time: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            pages: 10,
        }
    }
}

/// What a pass has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Blobs forgotten, by why.
    pub forgotten: BTreeMap<&'static str, u64>,
    /// Objects that could not be removed or listed; a later pass tries again.
    pub failed: u64,
    /// Objects removed that no row named.
    pub leaked: u64,
    /// Tombstones removed.
    pub tombstones: u64,
    /// Idempotency keys dropped.
    pub idempotency_keys: u64,
    /// Graphs of abandoned groups that have begun to go.
    pub abandoned: u64,
    /// Rows of graphs that are going, removed.
    pub erased: u64,
    /// Questions that the directory did not answer; nothing was forgotten on their account.
    pub doubts: u64,
    /// Whether work was left for the next pass because its time was up.
    pub cut_short: bool,
}

impl SweepReport {
    /// How many blobs were forgotten for this reason.
    #[must_use]
    pub fn of(&self, reason: ForgetReason) -> u64 {
        self.forgotten.get(reason.as_str()).copied().unwrap_or(0)
    }
}

/// How far the comparison of objects with rows has come.
#[derive(Debug, Default)]
struct Place {
    /// The last object that was compared, within a round.
    after: Option<ObjectKey>,
    /// When the next round begins.
    next: Option<Timestamp>,
    /// Whether this round began in the middle: another follows it at once.
    from_middle: bool,
}

/// Forgets what is due, pass by pass, over the ports.
///
/// A pass may be dropped at any moment, and the process may die in it: each step is a transaction
/// or may be repeated, and the next pass finds what is left. Of two that sweep the same store at
/// once each does a part; it is whoever runs them that keeps it to one.
pub struct Sweep {
    store: Arc<dyn SweepStore>,
    blobs: Arc<dyn BlobStore>,
    directory: Arc<dyn Directory>,
    eraser: Eraser,
    clock: Arc<dyn Clock>,
    options: SweepOptions,
    place: Mutex<Place>,
}

impl Sweep {
    /// A sweep with the system's clock that tells nobody of events.
    #[must_use]
    pub fn new(
        store: Arc<dyn SweepStore>,
        blobs: Arc<dyn BlobStore>,
        directory: Arc<dyn Directory>,
        options: SweepOptions,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let eraser = Eraser::new(
            Arc::<dyn SweepStore>::clone(&store),
            Arc::clone(&blobs),
            Arc::new(NoEvents),
            options.patience,
        );
        Self {
            store,
            blobs,
            directory,
            eraser,
            clock,
            options,
            place: Mutex::default(),
        }
    }

    /// What tells the time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Who is told of events. One that panics is contained.
    #[must_use]
    pub fn events(mut self, events: Arc<dyn EventSink>) -> Self {
        self.eraser = Eraser::new(
            Arc::<dyn SweepStore>::clone(&self.store),
            Arc::clone(&self.blobs),
            events,
            self.options.patience,
        );
        self
    }

    /// Begins to compare objects with rows at this name, and at the first when the last has been had.
    /// Names are random: give a random one, and a job that has only the time for some of them each
    /// time comes upon all of them, though nobody remembers how far it came.
    #[must_use]
    pub fn compare_from(self, random: [u8; 16]) -> Self {
        let place = Place {
            after: Some(ObjectKey::new(self.store.instance(), random)),
            next: None,
            from_middle: true,
        };
        Self {
            place: Mutex::new(place),
            ..self
        }
    }

    /// Runs one pass: blobs that have expired, uploads that were never finished, blobs whose
    /// removal was left unfinished; blobs that everybody has fetched; graphs whose group is
    /// abandoned, and those that are being erased; tombstones and idempotency keys past their time;
    /// objects that no row names.
    ///
    /// # Errors
    /// Where the store fails. An object that cannot be removed and a directory that does not
    /// answer are no errors of the pass: they are counted, and nothing is forgotten on doubt.
    pub async fn pass(&self) -> StoreResult<SweepReport> {
        pass::Pass::new(self).run().await
    }

    /// What a pass would forget now, and why: at most `limit` of each kind. Changes nothing.
    ///
    /// # Errors
    /// As of [`pass`](Self::pass).
    pub async fn preview(&self, limit: usize) -> StoreResult<Preview> {
        preview::preview(self, limit).await
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
