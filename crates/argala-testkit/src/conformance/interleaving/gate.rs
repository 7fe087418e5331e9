//! Where a write is held up, and the story of what went through there.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use argala_core::{
    StoreError, StoreResult,
    ports::{Event, EventSink, Poke, PokeSink, RateLimiter, RateLimiters, Verdict},
};
use argala_wire::MemberId;
use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::Interpose;

/// What others may see the traces of. Between the answer to anything else and the next call nothing
/// happens that another could meet: the stop before that call is the one after this.
const CHANGES: [&str; 21] = [
    "register",
    "revoke",
    "rotate",
    "grant",
    "push",
    "reserve_blob",
    "commit_blob",
    "abandon_blob",
    "forget_blob",
    "drop_blob",
    "put",
    "delete",
    "doom_blobs",
    "deliveries",
    "doom_delivered",
    "note_groups",
    "begin_erasure",
    "erase_some",
    "drop_tombstones",
    "drop_idempotency",
    "poke",
];

/// The place where a write is held up: the so-manieth of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nowhere.
    Never,
    /// On the way to a port, on the way back where something was changed, or before a piece of a body
    /// comes.
    Call(usize),
    /// Where the caller's own future waits for something that is no port: a thread that verifies
    /// signatures, a pause between a sweep's batches, the task that does the work.
    Wait(usize),
    /// Before a statement of the database's, inside a call of the store.
    Statement(usize),
}

/// One thing that a relay or its sweep did.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// This operation of a port was answered.
    Answered(&'static str),
    /// It told this.
    Event(Event),
    /// It sent this.
    Poke(Poke),
}

/// Stands between a relay and all its ports. Holds it up at the stop until it is let go, and takes
/// note of what it does.
pub(super) struct Gate {
    stop: Stop,
    calls: AtomicUsize,
    waits: AtomicUsize,
    statements: AtomicUsize,
    /// Calls that have not been answered yet.
    within: AtomicUsize,
    reached: Semaphore,
    go: Semaphore,
    is_let_go: Mutex<bool>,
    letting_go: Condvar,
    story: Mutex<Vec<Step>>,
    /// Whether objects cannot be removed.
    keeps_objects: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    pub(super) fn at(stop: Stop) -> Arc<Self> {
        Arc::new(Self {
            stop,
            calls: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            statements: AtomicUsize::new(0),
            within: AtomicUsize::new(0),
            reached: Semaphore::new(0),
            go: Semaphore::new(0),
            is_let_go: Mutex::new(false),
            letting_go: Condvar::new(),
            story: Mutex::new(Vec::new()),
            keeps_objects: AtomicBool::new(false),
        })
    }

    /// Lets no object be removed any more.
    pub(super) fn keep_objects(&self) {
        self.keeps_objects.store(true, Ordering::SeqCst);
    }

    /// Waits until somebody is held up here.
    pub(super) async fn reached(&self) {
        let reached = self.reached.acquire().await;
        drop(reached.expect("never closed"));
    }

    /// Lets whoever is held up go on, or will be.
    pub(super) fn let_go(&self) {
        self.go.add_permits(1);
        *lock(&self.is_let_go) = true;
        self.letting_go.notify_all();
    }

    /// How far its write has come: a number that grows.
    pub(super) fn progress(&self) -> usize {
        [&self.calls, &self.waits, &self.statements]
            .into_iter()
            .map(|count| count.load(Ordering::SeqCst))
            .sum()
    }

    /// Whether it is within a call of the store that the write is held up, where it may hold locks.
    pub(super) const fn is_within_the_store(&self) -> bool {
        matches!(self.stop, Stop::Statement(_))
    }

    pub(super) fn story(&self) -> Vec<Step> {
        lock(&self.story).clone()
    }

    fn note(&self, step: Step) {
        lock(&self.story).push(step);
    }

    async fn hold(&self) {
        self.reached.add_permits(1);
        let go = self.go.acquire().await;
        drop(go.expect("never closed"));
    }

    /// Whether so many pokes have been carried away.
    pub(super) fn has_poked(&self, count: usize) -> bool {
        let is_poke = |step: &&Step| matches!(step, Step::Answered("poke"));
        lock(&self.story).iter().filter(is_poke).count() >= count
    }

    /// Passes on the way to a port or back.
    pub(super) async fn pass(&self) {
        let at = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.stop == Stop::Call(at) {
            self.hold().await;
        }
    }

    /// Passes before a statement. Blocks the thread, as the database does that is slow to begin.
    fn pass_statement(&self) {
        let at = self.statements.fetch_add(1, Ordering::SeqCst);
        if self.stop != Stop::Statement(at) {
            return;
        }
        self.reached.add_permits(1);
        let wait = || {
            let mut is_let_go = lock(&self.is_let_go);
            while !*is_let_go {
                let waited = self.letting_go.wait(is_let_go);
                is_let_go = waited.unwrap_or_else(PoisonError::into_inner);
            }
        };
        // A thread of the runtime hands its other tasks on first.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::block_in_place(wait);
        } else {
            wait();
        }
    }

    /// Holds `write` up where it waits for something that is no port.
    pub(super) fn around<F: Future>(self: &Arc<Self>, write: F) -> Around<F> {
        Around {
            write: Box::pin(write),
            held: None,
            gate: Arc::clone(self),
        }
    }

    /// The limiters with this gate before each.
    pub(super) fn before_limiters(self: &Arc<Self>, limiters: &RateLimiters) -> RateLimiters {
        let limited = |inner: &Arc<dyn RateLimiter>| -> Arc<dyn RateLimiter> {
            Arc::new(Limited {
                inner: Arc::clone(inner),
                gate: Arc::clone(self),
            })
        };
        RateLimiters {
            push: limited(&limiters.push),
            pull: limited(&limiters.pull),
            blobs: limited(&limiters.blobs),
            keys: limited(&limiters.keys),
        }
    }
}

#[async_trait]
impl Interpose for Gate {
    async fn before(&self, operation: &'static str) -> StoreResult<()> {
        self.within.fetch_add(1, Ordering::SeqCst);
        self.pass().await;
        if operation == "delete" && self.keeps_objects.load(Ordering::SeqCst) {
            self.within.fetch_sub(1, Ordering::SeqCst);
            return Err(StoreError::unavailable(operation, "told to fail"));
        }
        Ok(())
    }

    async fn after(&self, operation: &'static str) -> StoreResult<()> {
        self.note(Step::Answered(operation));
        if CHANGES.contains(&operation) {
            self.pass().await;
        }
        self.within.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Limited {
    inner: Arc<dyn RateLimiter>,
    gate: Arc<Gate>,
}

#[async_trait]
impl RateLimiter for Limited {
    async fn check(&self, member: &MemberId) -> Verdict {
        let passed = self.gate.before("check").await;
        passed.expect("this gate fails nobody");
        let verdict = self.inner.check(member).await;
        let passed = self.gate.after("check").await;
        passed.expect("this gate fails nobody");
        verdict
    }
}

#[async_trait]
impl PokeSink for Gate {
    async fn poke(&self, poke: &Poke) -> StoreResult<()> {
        self.before("poke").await?;
        self.note(Step::Poke(poke.clone()));
        self.after("poke").await
    }
}

/// An event sink is told and does not wait: there is nothing to hold up.
impl EventSink for Gate {
    fn emit(&self, event: &Event) {
        self.note(Step::Event(event.clone()));
    }
}

/// A write that is held up where it waits.
pub(super) struct Around<F> {
    write: Pin<Box<F>>,
    held: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    gate: Arc<Gate>,
}

impl<F: Future> Future for Around<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            if let Some(held) = &mut self.held {
                std::task::ready!(held.as_mut().poll(context));
                self.held = None;
            }
            if let Poll::Ready(ended) = self.write.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            // What a port is asked for has a stop of its own.
            if self.gate.within.load(Ordering::SeqCst) > 0 {
                return Poll::Pending;
            }
            let at = self.gate.waits.fetch_add(1, Ordering::SeqCst);
            if self.gate.stop != Stop::Wait(at) {
                return Poll::Pending;
            }
            let gate = Arc::clone(&self.gate);
            self.held = Some(Box::pin(async move { gate.hold().await }));
        }
    }
}

/// Where a replica's database says which statement it begins. Clones are the same place.
#[derive(Clone, Default)]
pub struct Statements(Arc<Mutex<Option<Arc<Gate>>>>);

impl Statements {
    /// A statement begins: to be called by the probe of the database. Blocks while the statement is
    /// held up.
    pub fn begin(&self) {
        let gate = lock(&self.0).clone();
        if let Some(gate) = gate {
            gate.pass_statement();
        }
    }

    /// Whose statements they are from now on.
    pub(super) fn belong_to(&self, gate: Option<&Arc<Gate>>) {
        *lock(&self.0) = gate.cloned();
    }
}
